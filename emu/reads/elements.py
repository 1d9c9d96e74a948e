"""Finds which elements of a tensor nobody computed, where the others are known: a loss beside a count, for example.

Flags say so of each element, in the order in which a list of the tensor's values has them.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor

MOST = 4096
"""The most elements of a tensor that are looked at one by one; those of a larger one count as alike."""
Flags = Sequence[bool]


def pieces(tensor: Tensor, flags: Flags) -> Iterator[tuple[int, int]]:
    """Yields the addresses from and up to which the flagged elements lie."""
    item = tensor.element_size()
    if tensor.is_contiguous():
        first = tensor.data_ptr()
        for flag, run in itertools.groupby(flags):
            last = first + item * sum(1 for _ in run)
            if flag:
                yield first, last
            first = last
        return
    for address, flag in zip(addresses(tensor), flags, strict=True):
        if flag:
            yield address, address + item


def addresses(tensor: Tensor) -> Iterator[int]:
    """Yields the address of each element."""
    item, first = tensor.element_size(), tensor.data_ptr()
    steps = [
        range(0, size * step, step) if step else [0] * size for size, step in zip(*_dimensions(tensor), strict=True)
    ]
    for place in itertools.product(*steps):
        yield first + item * sum(place)


def _dimensions(tensor: Tensor) -> tuple[tuple[int, ...], tuple[int, ...]]:
    return tuple(tensor.size()), tuple(tensor.stride())


def flags_in(tensor: Tensor, unknown: Callable[[int, int], int]) -> Flags | None:
    """Returns the flags of a tensor; None if its elements are alike, or too many. `unknown(address, nbytes)`: how many
    of these bytes nobody computed.
    """
    numel, item = tensor.numel(), tensor.element_size()
    if not 1 < numel <= MOST:
        return None
    if not tensor.is_contiguous():
        flags = [unknown(address, item) > 0 for address in addresses(tensor)]
    else:
        flags = [False] * numel
        _halve(flags, tensor.data_ptr(), item, 0, numel, unknown)
    return None if all(flags) or not any(flags) else flags


def _halve(flags: list[bool], first: int, item: int, begin: int, end: int, unknown: Callable[[int, int], int]) -> None:
    found = unknown(first + begin * item, (end - begin) * item)
    if not found:
        return
    if found == (end - begin) * item or end - begin == 1:
        flags[begin:end] = [True] * (end - begin)
        return
    middle = (begin + end) // 2
    _halve(flags, first, item, begin, middle, unknown)
    _halve(flags, first, item, middle, end, unknown)


def flags_of(value: Any, of_leaf: Callable[[Any], Flags | None]) -> Flags | None:
    """Returns the flags of what is made of a number, a tensor or an array, or of lists of them. `of_leaf`: returns
    those of a value that is no list; None if they cannot be told.
    """
    if type(value) not in (list, tuple):
        return of_leaf(value)
    found: list[bool] = []
    for one in value:
        flags = flags_of(one, of_leaf)
        if flags is None or len(found) + len(flags) > MOST:
            return None
        found += flags
    return found


def flagged(value: Any, flags: Iterator[bool], mark: Callable[[Any], Any]) -> Any:
    """Returns lists of numbers with those marked that have a flag."""
    if type(value) is list:
        return [flagged(one, flags, mark) for one in value]
    return mark(value) if next(flags) else value
