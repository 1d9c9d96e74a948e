"""Which installed packages a script imports, by its text."""

from __future__ import annotations

from pathlib import Path

import pytest

from emu.contract.job import Job
from emu.preload import script_imports


def job(script: str, *arguments: str, module: bool = False, launcher: bool = False) -> Job:
    values = dict.fromkeys(Job.__dataclass_fields__, "")
    values |= {"script": script, "arguments": arguments, "module": module, "launcher": launcher}  # type: ignore[dict-item]
    return Job(**values)  # type: ignore[arg-type]


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of installed packages: alpha, with a module alpha.part, and beta."""
    folder = tmp_path / "site"
    for file in ("alpha/__init__.py", "alpha/part.py", "beta.py"):
        (folder / file).parent.mkdir(parents=True, exist_ok=True)
        (folder / file).write_text("")
    monkeypatch.setattr(script_imports, "_INSTALLED", (f"{folder}/",))
    monkeypatch.syspath_prepend(str(folder))
    return folder


def test_imports_are_found_wherever_they_stand(installed: Path, tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(
        "import os, json\nimport alpha.part\ntry:\n    import missing\nexcept ImportError:\n    pass\n"
        "def main():\n    from beta import run as r, walk\n    from alpha import *\n"
    )
    assert sorted(script_imports.read(job(str(script)))[0]) == [
        "alpha",
        "alpha.part",
        "beta:run",
        "beta:walk",
    ]


def test_the_script_s_own_modules_are_followed_and_not_imported(installed: Path, tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "__init__.py").write_text("from .layers import Layer\n")
    (tmp_path / "model" / "layers.py").write_text("raise SystemExit('imported')\nimport beta\nfrom .. import above\n")
    script = tmp_path / "train.py"
    script.write_text("from model import Layer\n")
    assert script_imports.read(job(str(script)))[0] == ["beta"]


def test_a_module_of_the_script_hides_an_installed_one(installed: Path, tmp_path: Path) -> None:
    (tmp_path / "beta.py").write_text("import alpha\n")
    script = tmp_path / "train.py"
    script.write_text("import beta\n")
    assert script_imports.read(job(str(script)))[0] == ["alpha"]


def test_a_launcher_s_script_is_found_among_its_words(installed: Path, tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text("import beta\n")
    command = job("torchrun", "--nproc-per-node", "8", str(script), "--config", "x.py", launcher=True)
    assert script_imports.read(command)[0] == ["beta"]


def test_a_script_that_is_no_python_imports_nothing(installed: Path, tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_bytes(b"\0\xffimport beta(")
    assert script_imports.read(job(str(script)))[0] == []
    assert script_imports.read(job(str(tmp_path / "absent.py")))[0] == []


def test_folders_without_init_are_followed(installed: Path, tmp_path: Path) -> None:
    inner = tmp_path / "project" / "models" / "parts"
    inner.mkdir(parents=True)
    (inner / "layer.py").write_text("import beta\n")
    script = tmp_path / "train.py"
    script.write_text("from project.models.parts import layer\nimport project.models.missing.deeper\n")
    assert script_imports.read(job(str(script)))[0] == ["beta"]


@pytest.mark.parametrize("folder", ["lib/python3.12/dist-packages", ".local/lib/python3.12/site-packages"])
def test_packages_of_another_environment_that_this_one_sees_are_installed_too(
    folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    packages = tmp_path / folder
    (packages / "big").mkdir(parents=True)
    (packages / "big" / "__init__.py").write_text("import other_module_of_it\n")
    monkeypatch.syspath_prepend(str(packages))
    script = tmp_path / "train.py"
    script.write_text("import big\n")
    assert script_imports.read(job(str(script))) == (["big"], {str(script)})
