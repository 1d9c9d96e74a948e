"""Keys of sources, the tools' versions, and Triton's key of the C module by which it calls the driver."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from emu.compiler import keys

ROOT = Path(__file__).parents[3]


def test_the_folder_of_a_run_is_not_part_of_the_key(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []
    manager = keys._any_run(lambda src, config: asked.append(config))
    for run in ("/tmp/run-1/lib", "/tmp/run-2/lib"):
        monkeypatch.setenv("TRITON_LIBCUDA_PATH", run)
        config = {"library_dirs": ["/triton/lib", run], "libraries": ["cuda"]}
        manager(b"source", config)
        assert config["library_dirs"] == ["/triton/lib", run], "the module is linked with the folder that there is"
    manager(b"source", {"library_dirs": ["/triton/lib", "/elsewhere"], "libraries": ["cuda"]})
    manager(b"source", {"library_dirs": None})
    assert asked[0] == asked[1]
    assert asked[0]["libraries"] == ["cuda"]
    assert asked[2]["library_dirs"] == ["/triton/lib", "/elsewhere"]
    assert asked[3] == {"library_dirs": None}


@pytest.mark.parametrize("value", ["3.9.0-text", b"\0bytes"])
def test_the_key_of_sources_is_kept_until_one_changes(
    value: str | bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package, calls = tmp_path / "hashed_package", []
    monkeypatch.delitem(sys.modules, package.name, raising=False)
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "part.py").write_text("1")
    os.utime(package / "part.py", ns=(0, 10**9))
    monkeypatch.syspath_prepend(str(tmp_path))

    def compute_key() -> Any:
        calls.append(1)
        return value

    compute_key.__module__ = "hashed_package.cache"

    def of_a_run() -> Any:
        key = keys.kept(tmp_path / "keys", "key", compute_key)
        assert key() == key()
        return key()

    assert [of_a_run(), of_a_run()] == [value, value]
    assert len(calls) == 1
    os.utime(package / "part.py", ns=(0, 2 * 10**9))
    assert (of_a_run(), len(calls)) == (value, 2)
    (package / "__init__.py").write_text("x = 1")
    assert (of_a_run(), len(calls)) == (value, 3)


def test_tools_are_asked_for_their_versions_before_ranks_are_forked() -> None:
    """A rank that asks finds the answers: it starts no program."""
    pytest.importorskip("triton")
    program = (
        "from emu.compiler import keys; keys.compute(90)\n"
        "import subprocess; subprocess.check_output = None\n"
        "from triton.backends.nvidia import compiler; from triton.runtime import build\n"
        "print(compiler.get_ptxas_version(90).count('release'), build.platform_key() != '')"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["1", "True"]
