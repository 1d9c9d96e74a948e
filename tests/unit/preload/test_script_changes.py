"""Changes that a script makes before it imports packages."""

from __future__ import annotations

from pathlib import Path

import pytest

from emu.preload import script_changes


def changes(tmp_path: Path, text: str) -> script_changes.ScriptChanges:
    script = tmp_path / "train.py"
    script.write_text(text)
    return script_changes.of([str(script)])


def test_variables_that_it_sets(tmp_path: Path) -> None:
    found = changes(
        tmp_path,
        "import os\nos.environ['A'] = '1'\nos.environ.setdefault('B', '2')\nos.environ.update(C='3')\n"
        "os.environ.update({'D': '4'})\nos.environ |= {'E': '5'}\nos.putenv('F', '6')\ndel os.environ['G']\n"
        "rank = os.environ['READ']\nother = os.environ.get('READ')\n",
    )
    assert {"A", "B", "C", "D", "E", "F", "G"} <= found.variables
    assert "READ" not in found.variables
    assert not found.unknown


def test_modules_that_it_replaces(tmp_path: Path) -> None:
    found = changes(tmp_path, "import sys, types\nsys.modules['datasets'] = types.ModuleType('datasets')\n")
    assert found.packages == {"datasets"}
    assert not found.unknown


@pytest.mark.parametrize(
    "text",
    [
        "os.environ[name] = value",
        "sys.modules[name] = module",
        "sys.path.insert(0, folder)",
        "sys.path[0] = folder",
        "sys.path = [folder]",
        "dotenv.load_dotenv()",
        "os.environ.update(read())",
    ],
)
def test_changes_that_the_text_does_not_tell(tmp_path: Path, text: str) -> None:
    assert changes(tmp_path, text).unknown


def test_a_folder_behind_the_others_hides_nothing(tmp_path: Path) -> None:
    assert not changes(tmp_path, "import sys\nsys.path.append('/work')\n").unknown
