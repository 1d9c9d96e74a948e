"""Checks the program that is run: a script or a module, and the interpreter that runs it."""

from __future__ import annotations

import importlib.util
import os
import shutil
import sys
from pathlib import Path

from formats.nearest import meant_file
from phantora_async.errors import UsageError


def checked_script(text: str) -> str:
    """The script's path. Raises UsageError if the file cannot be run."""
    path = Path(text)
    if not path.exists():
        module = f"if it is a module: phantora-async run -m {text}" if path.suffix != ".py" else ""
        raise UsageError(f"script not found: {text}", meant_file(text) or module)
    if path.is_dir() and not (path / "__main__.py").is_file():
        raise UsageError(f"script {text} is a directory without __main__.py")
    if not path.is_dir() and not path.is_file():
        raise UsageError(
            f"script {text} is a pipe, a socket or a device: each rank reads the script", "write it to a file"
        )
    if not os.access(path, os.R_OK):
        raise UsageError(f"script {text} cannot be read")
    return text


def checked_module(text: str) -> str:
    """The module's name. Raises UsageError if it is not a valid one."""
    if not all(part.isidentifier() for part in text.split(".")):
        raise UsageError(f"-m {text}: not a module name", "to run a file, leave out -m")
    return text


def find_python(text: str | None) -> Path:
    """The interpreter's absolute path, with links kept: a virtual environment's interpreter is a link that must not be
    resolved.
    """
    if text is None:
        if importlib.util.find_spec("torch") is None:
            raise UsageError(
                "PyTorch is not installed in this environment",
                "pip install torch (the CUDA build; no GPU needed), or name the interpreter of another environment: "
                "--python PATH",
            )
        return Path(sys.executable)
    found = shutil.which(text)
    if found is None:
        raise UsageError(f"--python {text}: interpreter not found")
    return Path(found).absolute()
