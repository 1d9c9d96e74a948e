"""Reductions and scans of Triton's programs: an associative operation combines elements along an axis."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from ..formats.ttir import Operation
from .integer_stores import NotEvaluated

if TYPE_CHECKING:
    from torch import Tensor

_RETURNS = ("tt.reduce.return", "tt.scan.return")


class Combination:
    """Computes a `tt.reduce` or a `tt.scan`."""

    def __init__(self, operation: Operation, table: dict[str, Callable[..., Any]], take: Callable[[int], None]) -> None:
        """`take`: is called for each operation on elements, with their number."""
        self._operation, self._table, self._take = operation, table, take
        self.outer = tuple(dict.fromkeys(_taken_from_outside(operation)))
        """Names of values that its region takes from outside."""

    def __call__(self, *values: Tensor) -> Sequence[Tensor]:
        """Returns the results. `values`: the operands, then those of `outer`."""
        found = re.search(r"axis = (\d+)", self._operation.text)
        if found is None:
            raise NotEvaluated(self._operation.text)
        n = len(values) - len(self.outer)
        outside = dict(zip(self.outer, values[n:], strict=True))
        combine = _reduced if self._operation.name == "tt.reduce" else _scanned
        is_reversed = "reverse = true" in self._operation.text
        return combine(values[:n], 1 + int(found[1]), is_reversed, lambda *pair: self._combined(outside, *pair))

    def _combined(self, outside: dict[str, Tensor], left: Sequence[Tensor], right: Sequence[Tensor]) -> list[Tensor]:
        known = {**outside, **dict(zip(self._operation.arguments, (*left, *right), strict=True))}
        for one in self._operation.regions[0]:
            if one.name in _RETURNS:
                return [known[name] for name in one.operands]
            function = self._table.get(one.name)
            if function is None:
                raise NotEvaluated(self._operation.name)
            (result,) = one.results
            known[result] = value = function(one, *(known[name] for name in one.operands))
            self._take(value.numel())
        return []


def _taken_from_outside(operation: Operation) -> Iterator[str]:
    inside = {*operation.arguments}
    for one in operation.regions[0]:
        yield from (name for name in one.operands if name not in inside)
        inside.update(one.results)


_Combine = Callable[[Sequence["Tensor"], Sequence["Tensor"]], list["Tensor"]]


def _reduced(values: Sequence[Tensor], axis: int, is_reversed: bool, combined: _Combine) -> list[Tensor]:
    """Neighbours are combined until one is left: the operation is associative."""
    import torch

    state = list(values)
    while (length := state[0].shape[axis]) > 1:
        even = [value.narrow(axis, 0, length // 2 * 2) for value in state]
        even = [value.reshape(*value.shape[:axis], length // 2, 2, *value.shape[axis + 1 :]) for value in even]
        first, second = ([value.select(axis + 1, n) for value in even] for n in (0, 1))
        pairs = combined(first, second)
        if length % 2:
            last = [value.narrow(axis, length - 1, 1) for value in state]
            pairs = [torch.cat((pair, one), axis) for pair, one in zip(pairs, last, strict=True)]
        state = pairs
    return [value.squeeze(axis) for value in state]


def _scanned(values: Sequence[Tensor], axis: int, is_reversed: bool, combined: _Combine) -> list[Tensor]:
    import torch

    state = [value.flip(axis) if is_reversed else value for value in values]
    length, step = state[0].shape[axis], 1
    while step < length:
        earlier = [value.narrow(axis, 0, length - step) for value in state]
        later = [value.narrow(axis, step, length - step) for value in state]
        sums = combined(earlier, later)
        state = [torch.cat((v.narrow(axis, 0, step), s), axis) for v, s in zip(state, sums, strict=True)]
        step *= 2
    return [value.flip(axis) for value in state] if is_reversed else state
