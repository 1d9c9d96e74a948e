"""Frames of the program that makes a read."""

from __future__ import annotations

import ast
import functools
import itertools
import os
import sys
from collections.abc import Iterator
from types import CodeType, FrameType
from typing import Any, NamedTuple

from ..interpreter.code_owner import Owner, owner_of

_FAST_LOCALS = 1
"""CO_OPTIMIZED: the variables of such code are no dictionary."""
MOST_FRAMES = 200
MOST_PLACES = 10_000
"""The most places that are remembered: a program may compile code all the time."""
_owners: dict[str, bool] = {}


class Position(NamedTuple):
    """The position of an expression in its file."""

    line: int
    last_line: int
    column: int
    last_column: int

    @classmethod
    def of(cls, node: ast.expr | ast.stmt) -> Position:
        return cls(node.lineno, node.end_lineno or 0, node.col_offset, node.end_col_offset or 0)


def program_frames() -> Iterator[FrameType]:
    """Yields the frames of the calling thread, from the read outwards: without those of the emulation."""
    frame: FrameType | None = sys._getframe(1)
    for _ in range(MOST_FRAMES):
        if frame is None:
            return
        file = frame.f_code.co_filename
        ours = _owners.get(file)
        if ours is None:
            ours = _owners[file] = owner_of(file) is Owner.EMULATION
        if not ours:
            yield frame
        frame = frame.f_back


def path_of(filename: str, folder: str) -> str:
    """Returns an absolute path. `folder`: where the program was started."""
    return os.path.normpath(os.path.join(folder, filename))


class Variables:
    """The present values of a frame's variables. Keeps nothing alive when it is closed."""

    def __init__(self, frame: FrameType) -> None:
        self._frame = frame
        self._locals: Any = frame.f_locals

    def __enter__(self) -> Variables:
        return self

    def __exit__(self, *error: object) -> None:
        """Lets go of the values. Until Python 3.12, f_locals of a function is a copy, which the frame keeps. It is
        emptied unless the program has the same dictionary, by calling locals().
        """
        copied, self._locals = self._locals, None
        fast = self._frame.f_code.co_flags & _FAST_LOCALS
        if fast and type(copied) is dict and sys.getrefcount(copied) <= 3:  # the frame, this function, the call
            copied.clear()

    def get(self, name: str, default: Any) -> Any:
        for space in (self._locals, self._frame.f_globals, self._frame.f_builtins):
            if name in space:
                return space[name]
        return default


@functools.lru_cache(MOST_PLACES)
def position_of(code: CodeType, instruction: int) -> Position:
    """Returns the position of the expression that the instruction belongs to; zeros if it is not known."""
    place = next(itertools.islice(code.co_positions(), instruction // 2, None), (None, None, None, None))
    return Position(*(number or 0 for number in place))
