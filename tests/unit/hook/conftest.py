import importlib.util
import shutil
import subprocess
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from ...conftest import Once
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


SANITIZE = "address,undefined"


@pytest.fixture(scope="session")
def sanitized_library(library: Path, once: Once) -> Path:
    """The hook library with sanitizers; a thread that takes locks out of their order ends the process."""

    def build(folder: Path) -> Path:
        path: Path = build_script().build(folder, sanitize=SANITIZE, check_locks=True)
        return path

    return Path(once("sanitized", build))


def c_program(folder: Path, source: Path, library: Path, sanitize: bool = False) -> Path:
    """Compiles a C test in ``folder`` and links it with the library."""
    program = folder / "program"
    flags = ["-std=gnu11", "-O1", "-g", "-pthread", "-Wall", "-Wextra", "-Werror", "-Wno-builtin-declaration-mismatch"]
    if sanitize:
        flags += [f"-fsanitize={SANITIZE}", "-fno-sanitize-recover=all"]
    paths = [f"-I{HOOK}", f"-I{source.parent}", "-o", program, source, f"-L{library.parent}", "-l:libcuda.so.1"]
    subprocess.run(["cc", *flags, *paths, f"-Wl,-rpath,{library.parent}", "-Wl,--disable-new-dtags"], check=True)
    return program


@pytest.fixture
def running(library: Path, tmp_path: Path) -> Callable[..., Any]:
    """``running(program, ...)``: see coordinator.running."""
    return partial(coordinator.running, library, tmp_path)
