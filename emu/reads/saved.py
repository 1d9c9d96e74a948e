"""Numbers and small tensors that nobody computed, in files that the program saves and loads again.

A file that `torch.save` writes has ordinary numbers, which every PyTorch loads. Which of them nobody computed is kept
beside it, in an extended attribute of the file: it goes along when the file is renamed, and with later runs.
"""

from __future__ import annotations

import copy
import itertools
import json
import os
from collections import OrderedDict, defaultdict
from collections.abc import Callable
from typing import Any

from .elements import MOST, Flags
from .marked import BY_BASE, PLAIN, plain

_ATTRIBUTE = "user.phantora_async.not_computed"
_MAPPINGS = (dict, OrderedDict, defaultdict)
_MOST = 8_000
"""The most numbers and tensors that are named for one file: an attribute is a few thousand bytes long."""
Elements = Callable[[Any], "bool | Flags"]
"""`elements(value)` says whether nobody computed a number, tensor or array; flags say so of each element."""
Noted = dict[int, "Flags | None"]
"""The numbers, tensors and arrays of a file that nobody computed, by their place in it: flags of their elements; None:
all of them.
"""


def for_file(value: Any, elements: Elements) -> tuple[Any, Noted]:
    """Returns what the file gets, with ordinary numbers, and what of it nobody computed."""
    unknown: Noted = {}

    def visit(number: int, one: Any) -> Any:
        found = elements(one)
        if found is not False:
            unknown[number] = None if found is True else found
        return plain(one)

    return _Walk(visit).of(value), unknown


def from_file(value: Any, unknown: Noted, mark: Callable[[Any, Flags | None], Any]) -> Any:
    """Returns what the program gets of a file: `mark(value, flags)` makes numbers and tensors of it such that nobody
    computed.
    """
    return _Walk(lambda number, one: mark(one, unknown[number]) if number in unknown else one).of(value)


def note(path: str, unknown: Noted) -> None:
    """Notes at the file what of it nobody computed: places, and for a tensor of which a part is known the lengths of
    its known and unknown runs, a known one first.
    """
    entries = [number if flags is None else [number, *_runs(flags)] for number, flags in unknown.items()]
    try:
        if entries:
            os.setxattr(path, _ATTRIBUTE, json.dumps(entries[:_MOST]).encode())
        elif _ATTRIBUTE in os.listxattr(path):
            os.removexattr(path, _ATTRIBUTE)
    except OSError:
        return  # the file system keeps no attributes: the numbers count as known


def noted(path: str) -> Noted:
    """Returns what was noted at a file that the program loads; empty for other files."""
    found: Noted = {}
    try:
        for entry in json.loads(os.getxattr(path, _ATTRIBUTE)):
            number, *runs = entry if isinstance(entry, list) else [entry]
            flags = (i % 2 == 1 for i, run in enumerate(runs) for _ in range(run))
            found[int(number)] = list(itertools.islice(flags, MOST)) or None
    except (OSError, ValueError, TypeError):
        return {}
    return found


def _runs(flags: Flags) -> list[int]:
    runs = [sum(1 for _ in run) for _, run in itertools.groupby(flags)]
    return [0, *runs] if flags[0] else runs


class _Walk:
    """A walk through containers of Python's own, in their order, which a file keeps."""

    def __init__(self, visit: Callable[[int, Any], Any]) -> None:
        self._visit = visit
        self._number = 0

    def of(self, value: Any) -> Any:
        """Returns the value with what `visit` makes of its numbers and tensors; the object itself if that changes
        nothing.
        """
        kind = type(value)
        if kind in BY_BASE or kind in PLAIN or hasattr(value, "untyped_storage"):
            self._number += 1
            return self._visit(self._number, value)
        if kind in _MAPPINGS:
            changed = {key: new for key, one in value.items() if (new := self.of(one)) is not one}
            if changed:
                value = copy.copy(value)
                value.update(changed)
        elif kind is list or kind is tuple:
            parts = [self.of(one) for one in value]
            if any(new is not one for new, one in zip(parts, value, strict=True)):
                return kind(parts)
        return value
