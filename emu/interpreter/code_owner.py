"""Tells whose code a frame runs: the user's, an installed package's, the standard library's or ours.

The hook library (`emu/hook/.../sites.c`) applies the same rule to the frames it reads itself.
"""

from __future__ import annotations

import enum
import os
import re
import runpy

OUR_FOLDER = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
STDLIB_FOLDER = os.path.dirname(os.__file__)
_OUR_FILES = OUR_FOLDER + os.sep
_STDLIB_FILES = (STDLIB_FOLDER + os.sep, "<frozen")
_RUNPY = ("<frozen runpy>", runpy.__file__)
"""It starts the script, so its frames stand between ours and the script's."""


_OF_INDUCTOR = re.compile(r"/(\w\w)/c\1\w{37,}\.py$")


class Owner(enum.Enum):
    """The owner of a frame's code."""

    USER = enum.auto()
    PACKAGE = enum.auto()
    """Installed: below site-packages or dist-packages."""
    STDLIB = enum.auto()
    EMULATION = enum.auto()
    """This package, and runpy: frames that a plain interpreter would not have had."""
    GENERATED = enum.auto()
    """Compiled from text without a file (`<string>` and the like), or written by Inductor."""


def owner_of(filename: str) -> Owner:
    """Returns the owner of code by its `co_filename`."""
    if filename.startswith(_OUR_FILES) or filename in _RUNPY:
        return Owner.EMULATION
    if "/site-packages/" in filename or "/dist-packages/" in filename:
        return Owner.PACKAGE
    if filename.startswith(_STDLIB_FILES):
        return Owner.STDLIB
    return Owner.GENERATED if filename.startswith("<") or _OF_INDUCTOR.search(filename) else Owner.USER
