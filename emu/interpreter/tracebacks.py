"""Tracebacks without frames of ours, of which a user can do nothing.

What stays are frames of an error of ours: those behind the last frame of others, unless they raised an exception on
purpose, or called what they stand in for, which is named `real` or `kernel` here.
"""

from __future__ import annotations

import dis
import linecache
import re
from collections.abc import Iterator
from itertools import islice
from types import TracebackType

from .code_owner import Owner, owner_of

_STANDS_IN = re.compile(r"(self\.)?_?(real|kernel)\w*\(")
_RAISE = dis.opmap["RAISE_VARARGS"]


def without_ours(error: BaseException) -> BaseException:
    """Returns the exception; its traceback, and those of what it was caused by, are cut."""
    seen: set[int] = set()
    left: list[BaseException | None] = [error]
    while left:
        one = left.pop()
        if one is None or id(one) in seen:
            continue
        seen.add(id(one))
        one.__traceback__ = _cut(one, one.__traceback__)
        left += [one.__cause__, one.__context__, *(one.exceptions if isinstance(one, BaseExceptionGroup) else ())]
    return error


def _cut(error: BaseException, first: TracebackType | None) -> TracebackType | None:
    entries = list(_entries(first))
    if not entries:
        return None
    others = [place for place, entry in enumerate(entries) if not _is_ours(entry)]
    last = others[-1] if others else -1
    told = entries[-1]
    ours = [] if _is_ours(told) and _is_meant(error, told) else entries[last + 1 :]
    kept = [entries[place] for place in others] + ours
    after = None
    for entry in reversed(kept):
        entry.tb_next, after = after, entry
    return after


def _entries(first: TracebackType | None) -> Iterator[TracebackType]:
    while first is not None:
        yield first
        first = first.tb_next


def _is_ours(entry: TracebackType) -> bool:
    return owner_of(entry.tb_frame.f_code.co_filename) is Owner.EMULATION


def _is_meant(error: BaseException, innermost: TracebackType) -> bool:
    """Tells whether the frame raises the error for the user to see, or passes it on from what it stands in for."""
    code = innermost.tb_frame.f_code
    if code.co_code[innermost.tb_lasti] == _RAISE:
        return not isinstance(error, AssertionError)
    line, _, begin, _ = next(islice(code.co_positions(), innermost.tb_lasti // 2, None))
    if line is None or begin is None:
        return False
    text = linecache.getline(code.co_filename, line).encode()[begin:]
    return _STANDS_IN.match(text.decode()) is not None
