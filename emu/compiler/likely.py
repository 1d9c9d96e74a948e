"""Guesses before a run whether its script compiles: then the forker imports the compiler once for all ranks.

A wrong guess costs time and memory, nothing else: the compiler takes 1.6 s of CPU time to import.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Sequence
from pathlib import Path

COMPILER_MODULES = ("torch._inductor.compile_fx",)
_SIGN = re.compile(r"torch[._]compile|flex_attention|\.compile\(\s*\)|from torch import .*\bcompile\b")


def compiles(script: str, arguments: Sequence[str]) -> bool:
    """`script`: a path, or a module's name. Imports nothing."""
    if any("compile" in argument for argument in arguments):
        return True
    with contextlib.suppress(OSError):
        return _SIGN.search(Path(script).read_text(errors="replace")) is not None
    return False
