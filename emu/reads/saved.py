"""Numbers and small tensors that nobody computed, in files that the program saves and loads again.

A file that `torch.save` writes has ordinary numbers, which every PyTorch loads. Which of them nobody computed is kept
beside it, in an extended attribute of the file: it goes along when the file is renamed, and with later runs.
"""

from __future__ import annotations

import copy
import json
import os
from collections import OrderedDict, defaultdict
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from .marked import PLAIN, mark_of, plain

if TYPE_CHECKING:
    from torch import Tensor

_ATTRIBUTE = "user.phantora_async.not_computed"
_MAPPINGS = (dict, OrderedDict, defaultdict)
_MOST = 8_000
"""The most numbers and tensors that are named for one file: an attribute is a few thousand bytes long."""


def for_file(value: Any, is_unknown: Callable[[Tensor], bool]) -> tuple[Any, list[int]]:
    """Returns what the file gets, with ordinary numbers; and which of the numbers and tensors in it nobody computed."""
    unknown: list[int] = []

    def visit(number: int, one: Any) -> Any:
        if mark_of(one) is not None or (hasattr(one, "untyped_storage") and is_unknown(one)):
            unknown.append(number)
        return plain(one)

    return _Walk(visit).of(value), unknown


def from_file(value: Any, unknown: list[int], mark: Callable[[Any], Any]) -> Any:
    """Returns what the program gets of a file: `mark` makes numbers and tensors of it such that nobody computed."""
    wanted = set(unknown)
    return _Walk(lambda number, one: mark(one) if number in wanted else one).of(value)


def note(path: str, unknown: list[int]) -> None:
    """Notes which numbers and tensors of the file nobody computed."""
    try:
        if unknown:
            os.setxattr(path, _ATTRIBUTE, json.dumps(unknown[:_MOST]).encode())
        elif _ATTRIBUTE in os.listxattr(path):
            os.removexattr(path, _ATTRIBUTE)
    except OSError:
        return  # the file system keeps no attributes: the numbers count as known


def noted(path: str) -> list[int]:
    """Returns what was noted of a file that the program loads; empty for other files."""
    try:
        return [int(one) for one in json.loads(os.getxattr(path, _ATTRIBUTE))]
    except (OSError, ValueError, TypeError):
        return []


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
        if kind is float or kind in PLAIN or hasattr(value, "untyped_storage"):
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
