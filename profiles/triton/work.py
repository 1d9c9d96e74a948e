"""The work of a whole launch of a Triton kernel."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field

SECTOR_NBYTES = 32


@dataclass(slots=True)
class Traffic:
    """Accesses through one pointer argument."""

    sector_nbytes: float = 0.0
    """The bytes of the sectors that each access touches, added up: the bytes that the L2 cache delivers."""
    asked_nbytes: float = 0.0
    """The bytes that the program asked for."""
    first: int | None = None
    last: int | None = None
    """The bounds of the addresses seen, in bytes from the pointer. None: no address was known."""
    scattered: bool = False
    """True if an address depends on data: then the bounds say nothing."""
    most_nbytes: float = float("inf")
    """The bytes that lie behind the pointer, as far as that is known."""

    def add(self, sector_nbytes: float, asked_nbytes: float, bounds: tuple[int, int] | None) -> None:
        self.sector_nbytes += sector_nbytes
        self.asked_nbytes += asked_nbytes
        if bounds is None:
            self.scattered = True
        else:
            self.first = bounds[0] if self.first is None else min(self.first, bounds[0])
            self.last = bounds[1] if self.last is None else max(self.last, bounds[1])

    @property
    def memory_nbytes(self) -> float:
        """The bytes that must come from memory at least once: not more than the addresses span."""
        if self.scattered or self.first is None or self.last is None:
            return min(self.sector_nbytes, self.most_nbytes)
        return min(self.sector_nbytes, float(self.last - self.first))


@dataclass(slots=True)
class LaunchWork:
    """The work of all threads of a launch together."""

    reads: dict[str, Traffic] = field(default_factory=lambda: defaultdict(Traffic))
    writes: dict[str, Traffic] = field(default_factory=lambda: defaultdict(Traffic))
    """The traffic by pointer argument."""
    product_flops: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    """The floating-point operations of products by dtype of the operands."""
    instructions: float = 0.0
    """The number of per-thread instructions."""
    rounds: float = 0.0
    """The rounds of dependent loads of the longest instance seen."""
    reductions: float = 0.0
    """The reductions across its threads, one after another."""
    atomics: float = 0.0
    """The number of items that are added to memory."""
    loops: float = 0.0
    """The number of loops of several products that begin."""
    gathers: float = 0.0
    """The loads of integers in loops of products, whose turns wait for them."""
    turned_nbytes: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    """The bytes of rows that loops whose end is data ask for where data says, by pointer argument."""
    smallest_tile: tuple[int, int] | None = None
    """The smallest tile of the products: the least rows and columns."""
    longest: float = 1.0
    """The products of the instance that has most, over the mean."""
    guesses: int = 0
    """The number of loops and branches that depend on data: their length was assumed."""

    @property
    def memory_nbytes(self) -> float:
        return sum(one.memory_nbytes for side in (self.reads, self.writes) for one in side.values())

    @property
    def sector_nbytes(self) -> float:
        return sum(one.sector_nbytes for side in (self.reads, self.writes) for one in side.values())

    @property
    def flops(self) -> float:
        return sum(self.product_flops.values())
