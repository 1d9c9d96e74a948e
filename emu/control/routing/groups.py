"""Tells the hook how long the groups of a grouped product are, which decides its time.

`aten::_grouped_mm` multiplies the rows of each group by a matrix of its own. Where the groups end is data, in the
argument `offs`. If it is known, the cost signature has the groups' sizes; if not, the groups are taken to be equal. A
mixture's groups differ from layer to layer and from batch to batch: the sizes are rounded, so that there are few
different signatures.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from ...private.access import schema_of
from ..computed_op import Kernel
from ..control_tensors import ControlTensors

if TYPE_CHECKING:
    from torch import Tensor

PRODUCTS = frozenset(("aten::_grouped_mm", "aten::_scaled_grouped_mm", "aten::_scaled_grouped_mm_v2"))
_BITS = 5
"""The number of significant bits of a rounded number, which is off by at most 1 in 32."""


def told(control: ControlTensors, operation: Any, call: Kernel) -> Kernel:
    """Returns the function to call in the place of `call`, which calls the CUDA kernel of one of PRODUCTS."""
    names = [argument.name for argument in schema_of(operation).arguments]
    place, hook = names.index("offs"), control.hook

    def product(keyset: Any, *args: Any, **kwargs: Any) -> Any:
        ends = args[place] if place < len(args) else kwargs.get("offs")
        sizes = None if ends is None else _sizes(control, ends)
        if sizes is None:
            return call(keyset, *args, **kwargs)
        hook.groups(sizes)
        try:
            return call(keyset, *args, **kwargs)
        finally:
            hook.groups(None)

    return product


def _sizes(control: ControlTensors, ends: Tensor) -> list[int] | None:
    """Returns the fields of a `grouped` signature; None if they are not known."""
    known = control.values_to_come(ends)
    if not known:
        return None
    rows = [max(end - last, 0) for last, end in pairwise([0, *known])]
    return [len(rows), *map(rounded, group_sizes(rows))]


def group_sizes(rows: list[int]) -> list[int]:
    """Returns the number of groups that are not empty, the rows of all, the rows of the longest, and how many tiles of
    64 and of 128 rows there are.
    """
    tiles: Callable[[int], int] = lambda high: sum(-(-n // high) for n in rows)  # noqa: E731
    return [sum(n > 0 for n in rows), sum(rows), max(rows), tiles(64), tiles(128)]


def rounded(number: int) -> int:
    """Rounds to the nearest number with 5 significant bits."""
    shift = max(number.bit_length() - _BITS, 0)
    return (number + (1 << shift >> 1)) >> shift << shift
