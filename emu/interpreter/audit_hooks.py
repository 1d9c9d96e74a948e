"""Audit hooks written in Python take no host time.

Once a library has added one (filelock does so on Python 3.12 and newer), the interpreter calls it at every import, open
file, fork and new thread, and it cannot be removed. The forker imports some libraries on a guess, and guesses otherwise
when the script has run before (`emu.compiler.compile_forecast`): so whether there is a hook says nothing about the
script.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Any

AuditHook = Callable[[str, tuple[Any, ...]], Any]


class Aside:
    """The class calls a hook. The rules for counting functions (`emu.interpreter.frame_counter`) put its call aside."""

    def __init__(self, hook: AuditHook) -> None:
        functools.update_wrapper(self, hook)  # the interpreter asks for `__cantrace__`
        self._hook = hook

    def __call__(self, event: str, arguments: tuple[Any, ...]) -> None:
        self._hook(event, arguments)


def install() -> None:
    """Wraps all hooks that are added from now on. Called once, in the forker, before libraries are imported."""
    add = sys.addaudithook

    @functools.wraps(add)
    def addaudithook(hook: AuditHook) -> None:
        add(Aside(hook))

    sys.addaudithook = addaudithook
