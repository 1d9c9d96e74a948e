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
        "from os import environ as env\nenv[name] = value",
        "from sys import path\npath.insert(0, folder)",
        "import sys as system\nsystem.path.insert(0, folder)",
        "env = os.environ\nenv[name] = value",
        "__import__('sys').modules[name] = module",
        "sys.modules[f'data{number}'] = module",
        "for name in read():\n    os.environ[name] = value",
        "names = ['A']\nnames.append(read())\nfor name in names:\n    os.environ[name] = value",
        "name = 'A'\nname += 'B'\nos.environ[name] = value",
        "name = 'A'\ndef read():\n    global name\n    name = input()\nos.environ[name] = value",
        "def put(name):\n    os.environ[name] = value\nput('A')\nput(read())",
        "def put(name):\n    os.environ[name] = value\nput('A')\nmap(put, names)",
        "def put(name):\n    os.environ[name] = value\nput(*names)",
        "def put(name):\n    os.environ[name] = value",
    ],
)
def test_changes_that_the_text_does_not_tell(tmp_path: Path, text: str) -> None:
    assert changes(tmp_path, text).unknown


def test_a_folder_behind_the_others_hides_nothing(tmp_path: Path) -> None:
    assert not changes(tmp_path, "import sys\nsys.path.append('/work')\n").unknown


@pytest.mark.parametrize(
    "text",
    [
        "path = 'a/b'\npath += '/c'\npath.insert(0, 1)",
        "modules['a'] = 1",
        "self.path = folder",
        "model.modules[name] = layer",
        "def load(path):\n    path.update(read())",
    ],
)
def test_other_things_of_the_same_names(tmp_path: Path, text: str) -> None:
    assert changes(tmp_path, text) == script_changes.ScriptChanges()


@pytest.mark.parametrize(
    ("text", "variables"),
    [
        ("for name in ('A', 'B'):\n    os.environ[name] = '1'", {"A", "B"}),
        ("for name, value in (('A', 1), ('B', 2)):\n    os.environ[name] = value", {"A", "B"}),
        ("known = {'A': '1', 'B': '2'}\nfor name, value in known.items():\n    os.environ[name] = value", {"A", "B"}),
        ("kept = {}\nfor name in ['A']:\n    kept[name] = 1\nfor key in kept:\n    del os.environ[key]", {"A"}),
        ("def put(name, value):\n    os.environ[name] = value\nput('A', 1)\nput(value=2, name='B')", {"A", "B"}),
        (
            "class Model:\n    def put(self, name):\n        os.environ[name] = '1'\n"
            "    def run(self):\n        self.put('A')",
            {"A"},
        ),
        ("name = 'A' if fast else 'B'\nos.environ[name] = '1'", {"A", "B"}),
        ("for number in range(3):\n    os.environ[f'LEVEL_{number}'] = '1'", {"LEVEL_*"}),
        ("name = 'A'\ndef read():\n    name = 'B'\n    os.environ[name] = '1'", {"B"}),
    ],
)
def test_names_that_are_followed(tmp_path: Path, text: str, variables: set[str]) -> None:
    assert changes(tmp_path, text) == script_changes.ScriptChanges(variables=variables)


def test_functions_are_called_in_other_files(tmp_path: Path) -> None:
    (tmp_path / "helper.py").write_text("import os\ndef put(name):\n    os.environ[name] = '1'\n")
    (tmp_path / "train.py").write_text("import helper\nhelper.put('A')\n")
    found = script_changes.of([str(tmp_path / "helper.py"), str(tmp_path / "train.py")])
    assert found == script_changes.ScriptChanges(variables={"A"})
