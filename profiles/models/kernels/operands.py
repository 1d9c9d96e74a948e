"""Estimates how many bytes a kernel's operands have, where its launch tells what lies behind its pointers.

A block may be larger than the tensor in it. Two kinds of blocks count less: a view, which begins inside a block, or
where one begins that is larger than all tensors of its operator, and whose end is not known, and a pool, a block many
times as large as all other operands together (a cache of keys and values, of which an attention reads what its tables
name). Either counts as much as the largest other operand. The time is then a lower bound, and says so.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from profiles.signature import Sized, elements

POOL = 64.0
"""The factor on the other operands together from which on a block is a pool."""
LARGEST_ITEM_NBYTES = 16
"""The most bytes of one element of a tensor: two numbers of 64 bits."""
LEAST_OF_POOL = 65536.0
"""The bytes of operands beside which a block can be a pool: beside a few numbers, or a row of weights, it is the data
that the kernel goes through.
"""


@dataclass(frozen=True, slots=True)
class Operands:
    nbytes: tuple[float, ...]
    """The bytes that count for each operand."""
    at_least: bool
    """True if some operands are larger than they count."""

    @property
    def total(self) -> float:
        return sum(self.nbytes)


def numbers(what: Sized) -> tuple[int, ...]:
    return tuple(int(one) for one in what.numbers.split(",") if one.isdigit())


@lru_cache(maxsize=4096)
def operands(what: Sized) -> Operands:
    blocks = [one for one in what.buffers.split(",") if one.lstrip("~").isdigit()]
    # A block for all layers of a model, say: the first layer's tensor begins where the block does.
    tensors = LARGEST_ITEM_NBYTES * sum(elements(shape) for shape in what.sizes if shape)
    begins = [one for one in blocks if not one.startswith("~") and 0 < tensors < float(one)]
    whole = [float(one) for one in blocks if not one.startswith("~") and one not in begins]
    views = [float(one.lstrip("~")) for one in blocks if one.startswith("~") or one in begins]
    # Pools come in twos (keys and values): what is left of the blocks below a gap of this factor are the operands.
    ordered = sorted(whole)
    kept = ordered
    for place in range(1, len(ordered)):
        if ordered[place] > POOL * sum(ordered[:place]) and sum(ordered[:place]) >= LEAST_OF_POOL:
            kept = ordered[:place]
            break
    largest = max(kept, default=min(views, default=0.0))
    others = [largest] * (len(ordered) - len(kept)) + [min(one, largest) for one in views]
    cut = len(kept) < len(ordered) or any(one > largest for one in views)
    return Operands((*kept, *others), cut)
