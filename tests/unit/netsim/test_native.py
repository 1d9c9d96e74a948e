"""The native library: sanitizers, its version, and what happens without a compiler."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from netsim import NetsimError, native

ROOT = Path(__file__).parents[3]
COMPILER = shutil.which("gcc")


def _runtime(name: str) -> str:
    found = subprocess.run([str(COMPILER), f"-print-file-name={name}"], capture_output=True, text=True, check=True)
    return found.stdout.strip()


@pytest.mark.skipif(COMPILER is None, reason="no gcc to build the sanitized library with")
def test_no_undefined_behaviour_and_no_memory_error(tmp_path: Path) -> None:
    library = tmp_path / "libnetsim.so"
    flags = ("-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-Wconversion", "-Wno-sign-conversion")
    built = subprocess.run(
        native.compile_command(str(COMPILER), library, flags), capture_output=True, text=True, check=False
    )
    if "cannot find" in built.stderr:
        pytest.skip("gcc's sanitizer libraries are not installed")
    assert built.returncode == 0, built.stderr
    preload = f"{_runtime('libasan.so')} {_runtime('libubsan.so')}"
    environment = {**os.environ, "LD_PRELOAD": preload, "ASAN_OPTIONS": "detect_leaks=0", "PYTHONPATH": str(ROOT)}
    script = str(Path(__file__).parent / "sanitized.py")
    done = subprocess.run(
        [sys.executable, script, str(library), "40"],
        env=environment,
        capture_output=True,
        text=True,
        timeout=250,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    assert done.stdout.strip() == "done"


def test_without_a_compiler_the_error_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(NetsimError, match="no C compiler was found"):
        native.build(tmp_path / "lib.so")


def test_the_library_and_the_bindings_agree() -> None:
    assert native.library().ns_abi() == native.ABI
    header = (Path(native.__file__).parent / "netsim.h").read_text()
    assert f"#define NS_ABI {native.ABI}" in header
    for name in native._SIGNATURES:
        assert f"{name}(" in header
