"""Models element-wise kernels with an operand that is not dense along the innermost dimension: a transposed one, a
slice.

A warp then asks for up to 32 sectors where it would ask for a few. The SMs take in so many a cycle, more where a block
finds a sector again that one of its threads asked for before, and the L2 cache has its bandwidth. What does not fit
into the cache until its neighbours are asked for comes from memory again, in pieces of two sectors.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from profiles.models.machine import Machine, overlapped
from profiles.signature import Shape, Strided

SECTOR_NBYTES, FETCHED_NBYTES, LINE_NBYTES = 32, 64, 128
"""The bytes that an SM asks for at a time, that come from memory at a time, and that have a place in the L2 cache."""
WARP = 32
SECTORS_PER_CYCLE = 0.61  # what one SM gets where each thread asks for a sector of its own
OF_WARP, OF_BLOCK = 1.95, 0.238  # exponents of the share of a warp's, and of a block's, sectors that differ
ADD_UP = 2.86  # exponent that joins the times


@dataclass(frozen=True, slots=True)
class Operand:
    strides: Shape
    item_nbytes: float

    def jumps(self) -> bool:
        return self.strides[0] > self.item_nbytes

    def elements(self, extent: Shape) -> int:
        return prod(size for size, stride in zip(extent, self.strides, strict=True) if stride)

    def fetched_nbytes(self, extent: Shape, l2_nbytes: int) -> float:
        """The bytes that come from memory."""
        least = min(
            (stride for size, stride in zip(extent, self.strides, strict=True) if stride and size > 1), default=0
        )
        own = self.elements(extent) * min(max(least, self.item_nbytes), FETCHED_NBYTES)
        if self.strides[0] <= SECTOR_NBYTES:
            return own
        # The neighbours in memory follow when all inner dimensions have been gone through.
        until = prod(extent[: self.strides.index(least)]) if least else 1
        kept = min(until * min(self.strides[0], LINE_NBYTES), self.elements(extent) * self.item_nbytes)
        return own if kept <= l2_nbytes else prod(extent) * min(self.strides[0], FETCHED_NBYTES)

    def sectors(self, extent: Shape, block: int) -> float:
        """The sectors per element, counted as sectors of threads that each ask for one of their own and take equally
        long.
        """
        at = [self._sector(extent, element) for element in range(min(block, prod(extent)))]
        warps = [at[first : first + WARP] for first in range(0, len(at), WARP)]
        of_warp = sum(len(set(warp)) for warp in warps) / (len(warps) * WARP)
        return float(of_warp**OF_WARP * (len(set(at)) / len(at)) ** OF_BLOCK)

    def _sector(self, extent: Shape, element: int) -> int:
        offset = 0
        for size, stride in zip(extent, self.strides, strict=True):
            element, place = divmod(element, size)
            offset += place * stride
        return offset // SECTOR_NBYTES


def operands(what: Strided, items: tuple[float, ...]) -> list[Operand]:
    """The operands. `items`: the bytes of an item as the arithmetic takes it. Casts read other items: no larger than
    the shortest stride.
    """
    found = []
    for text, item in zip(what.strides.split(","), items, strict=False):
        strides = tuple(map(int, text.split("x")))
        found.append(Operand(strides, min(item, *(stride for stride in strides if stride), item)))
    return found


def ns(machine: Machine, what: Strided, items: tuple[float, ...], block: int, dense_ns: float) -> float:
    """The time of the kernel. `dense_ns`: its time if no operand jumps; `block`: the elements of a block."""
    found = operands(what, items)
    memory = machine.memory_ns(sum(one.fetched_nbytes(what.extent, machine.gpu.memory.l2_nbytes) for one in found))
    sectors = prod(what.extent) * sum(one.sectors(what.extent, block) for one in found if one.jumps())
    cycles = sectors / (SECTORS_PER_CYCLE * machine.sms)
    asked = cycles / (machine.gpu.sm_clock_khz * 1e-6)
    return overlapped(asked, sectors * SECTOR_NBYTES / machine.l2_gb_per_s, memory, dense_ns, exponent=ADD_UP)
