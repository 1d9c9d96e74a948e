import importlib.util
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from . import coordinator

HOOK = Path(__file__).parents[3] / "emu" / "hook"


def build_script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("hook_build", HOOK / "build.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def library() -> Path:
    """The hook library of this checkout, built if stale."""
    if shutil.which("cc") is None:
        pytest.skip("needs a C compiler")
    path: Path = build_script().build(HOOK.parent / "lib")
    return path


@pytest.fixture
def running(library: Path, tmp_path: Path) -> Callable[..., Any]:
    """``running(program, ...)``: see coordinator.running."""
    return partial(coordinator.running, library, tmp_path)
