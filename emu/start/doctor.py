"""Answers `phantora-async doctor` for the interpreter that is to run ranks: its versions, and what there is of the
private names that the emulation uses. It starts no rank and does not load the hook library.

Prints one line of JSON. `failure` and `hint` say why no rank can run.
"""

from __future__ import annotations

import json
import os
import platform
import shutil
import sys
from importlib import metadata
from typing import Any

from . import supported

PACKAGES = (
    "numpy",
    "triton",
    "torchvision",
    "transformers",
    "accelerate",
    "lightning",
    "deepspeed",
    "megatron-core",
    "torchtitan",
    "transformer_engine",
    "transformer_engine_torch",
)
"""Names of the ranks' packages whose versions matter."""


def main() -> None:
    found: dict[str, Any] = {"python": platform.python_version(), "executable": sys.executable}
    try:
        supported.check_python()
        found |= _look()
    except supported.Unsupported as error:
        found |= {"failure": str(error), "hint": error.hint}
    print(json.dumps(found))


def _look() -> dict[str, Any]:
    from .prepare import CannotPrepare, check_torch

    try:
        check_torch()
    except CannotPrepare as error:
        return {"failure": str(error), "hint": error.hint}
    try:
        import torch
    except Exception as error:
        return {
            "failure": f"{sys.executable} cannot import torch: {type(error).__name__}: {error}",
            "hint": f"reinstall it: {sys.executable} -m pip install --force-reinstall torch",
        }
    from ..private import finding, symbols, table

    purposes = []
    for purpose in table.PURPOSES.values():
        names = [
            {"name": one.name.full, "state": one.state.value, "detail": one.detail, "seen": list(one.name.seen)}
            for one in finding.look_up(purpose)
        ]
        purposes.append(
            {"purpose": purpose.key, "use": purpose.use, "lost": purpose.consequence, "files": list(purpose.files)}
            | {"package": purpose.package, "names": names}
        )
    # Each function of C or C++ is a purpose of its own, as the hook library does without single ones.
    for symbol in symbols.read():
        state = symbols.state(symbol)
        name: dict[str, Any] = {
            "name": f"{symbol.library}:{symbol.name}",
            "state": state.value,
            "detail": "",
            "seen": [],
        }
        row = {"purpose": symbol.id.lower().replace("_", " "), "use": symbol.use, "lost": symbol.lost}
        purposes.append(row | {"files": ["emu/hook"], "package": "C", "names": [name]})
    return {
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "compiler": shutil.which(os.environ.get("CC") or "cc") or shutil.which("gcc") or shutil.which("clang"),
        "packages": {name: version for name in PACKAGES if (version := _version(name)) is not None},
        "private": purposes,
    }


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None
