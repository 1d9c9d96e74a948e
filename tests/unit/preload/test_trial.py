"""Which modules a rank would import as the forker does."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

from emu.preload import automatic, memory, script_imports, trial

MODULES = {
    "plain_a": "import os\nvalue = os.environ.get('HOME')\n",
    "reads_rank": "import os\nrank = os.getenv('RANK', '0')\n",
    "reads_later": "import os\ndef rank():\n    return os.environ['RANK']\n",
    "uses_reader": "import plain_a\nfrom reads_rank import rank\n",
    "host_name": "import socket\nname = socket.gethostname()\n",
    "reads_arguments": "import sys\nclass A:\n    def parse(self, words=sys.argv[1:]):\n        return words\n",
    "starts_thread": "import threading, time\nthreading.Thread(target=time.sleep, args=(60,), daemon=True).start()\n",
    "fails": "import plain_b\nraise RuntimeError\n",
    "plain_b": "",
    "ends": "import os\nos._exit(3)\n",
}


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name, text in MODULES.items():
        (tmp_path / f"{name}.py").write_text(text)
    (tmp_path / "bundle").mkdir()
    (tmp_path / "bundle" / "__init__.py").write_text("from .inner import rank\n")
    (tmp_path / "bundle" / "inner.py").write_text("from reads_rank import rank\n")
    (tmp_path / "bundle" / "other.py").write_text("import plain_b\n")
    monkeypatch.setattr(script_imports, "_INSTALLED", (f"{tmp_path}/",))
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setitem(
        sys.modules, "torch", type("torch", (), {"cuda": type("", (), {"is_initialized": bool}), "__version__": "2"})
    )
    return tmp_path


def accepted(*wanted: str, refused: tuple[str, ...] = ()) -> list[str]:
    return trial.acceptable(wanted, ("RANK", "OTHER_*"), refused)


def test_modules_that_read_what_only_ranks_know_are_refused(installed: Path) -> None:
    assert accepted("plain_a", "reads_rank", "reads_later", "host_name", "reads_arguments") == [
        "plain_a",
        "reads_later",
    ]


def test_so_is_what_imports_them_but_not_what_they_import(installed: Path) -> None:
    assert accepted("uses_reader") == ["plain_a"]
    assert accepted("reads_rank", "uses_reader") == ["plain_a"], "in whatever order"
    assert accepted("bundle.other") == ["plain_b"], "a module needs its package"


def test_threads_and_errors(installed: Path) -> None:
    assert accepted("starts_thread", "plain_a") == ["plain_a"]
    assert accepted("fails", "missing", "plain_a") == ["plain_b", "plain_a"]
    assert accepted("plain_a", "ends") == [], "nothing is known of a trial that has died"


def test_modules_of_a_package_that_fails_are_refused_and_so_are_its_threads(installed: Path) -> None:
    (installed / "broken").mkdir()
    (installed / "broken" / "__init__.py").write_text("from . import whole\nimport starts_thread\nimport missing\n")
    (installed / "broken" / "whole.py").write_text("")
    assert accepted("broken", "plain_a") == ["plain_a"]


def test_what_was_accepted_counts_until_packages_change(installed: Path) -> None:
    before = automatic._environment()
    assert before == automatic._environment()
    os.utime(installed, ns=(1, 1))
    assert automatic._environment() != before


def test_a_trial_changes_nothing_here(installed: Path) -> None:
    read, modules = os.environ.get, set(sys.modules)
    accepted("plain_a", "reads_rank")
    assert os.environ.get == read
    assert set(sys.modules) == modules


def test_packages_can_be_refused(installed: Path) -> None:
    assert accepted("uses_reader", "plain_b", refused=("plain_a",)) == ["plain_b"]
    (installed / "tries.py").write_text("try:\n    import absent\nexcept ImportError:\n    absent = None\n")
    assert accepted("tries", refused=("absent",)) == [], "the script may put it into sys.modules"


def test_what_was_accepted_is_kept_and_damage_is_forgotten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = str(tmp_path / "imports")
    file = memory.path(folder, ["a", "b"])
    assert file != memory.path(folder, ["ab"])
    assert memory.read(file) is None
    memory.write(file, ["x", "y"])
    assert memory.read(file) == ["x", "y"]
    for damage in (b"", b"{", json.dumps({"x": 1}).encode(), b"[1]", b"\xff\xfe"):
        Path(file).write_bytes(damage)
        assert memory.read(file) is None, damage
    monkeypatch.setattr(memory, "MOST_FILES", 3)
    for number in range(5):
        memory.write(memory.path(folder, [str(number)]), [])
    assert len(os.listdir(folder)) == 3
