"""Who holds a rank's device memory at its peak, as its hook library tells."""

from __future__ import annotations

from dataclasses import dataclass

from emu.contract import records
from emu.contract.records import HeldKind
from emu.contract.records_definition import RecordError


@dataclass(frozen=True, slots=True)
class Holder:
    """Blocks that one operation asked for at one line of the script, to hold the same kind of thing."""

    nbytes: int
    blocks: int
    held_as: HeldKind
    site: int
    """A number of the rank's call sites; 0: not known."""
    op: str
    """Empty if not known. Without both, all others of this kind."""


@dataclass(frozen=True, slots=True)
class MissingMemory:
    """An allocation that failed."""

    nbytes: int
    """What it asked for."""
    allocated: int
    reserved: int
    """What PyTorch's allocator had given out, and what it had of the device, at that moment."""
    site: int
    failures: int
    """How many there were; this is the last one."""


@dataclass(frozen=True, slots=True)
class StepMemory:
    """What is allocated over the step that has the peak. Each point stands for as many allocations as the others, the
    last one for as many or fewer."""

    allocations: int
    by_kind: dict[HeldKind, tuple[int, ...]]
    """Bytes at the end of each point."""
    most: tuple[int, ...]
    """The most bytes at one time in each point."""


@dataclass(frozen=True, slots=True)
class Growth:
    """Memory that is allocated when steps end, and becomes more from step to step."""

    nbytes: int
    """By how much in a step, in the mean of the last ones."""
    steps: int
    """In a row, the last one among them."""
    equal: bool
    """The last steps have left equally much."""
    site: int
    """Where most of it was asked for, as of a ``Holder``."""
    op: str


@dataclass(frozen=True, slots=True)
class HeldMemory:
    """Of one device of a rank."""

    allocated: int
    """At the peak: the sum of all holders."""
    reserved: int
    """By PyTorch's allocator at that moment."""
    holders: tuple[Holder, ...]
    """The largest first, then what is left of each kind."""
    missing: MissingMemory | None
    over_step: StepMemory | None = None
    by_collectives: int = 0
    """How much lower the peak would be if no collective kept a block longer than the program does."""
    growth: Growth | None = None
    expandable: bool = False
    """PyTorch's allocator has segments that it maps piece by piece (expandable_segments)."""


def from_record(record: records.MemoryHeld) -> HeldMemory:
    """Raises RecordError."""
    told = records.MemoryHolder.decode_all(record.payload, 0, record.entries)
    points_at = record.entries * records.MemoryHolder.size()
    points = records.MemoryPoint.decode_all(record.payload, points_at, record.points)
    text = record.payload[points_at + record.points * records.MemoryPoint.size() :]
    lines = text.decode(errors="replace").split("\n")
    kinds = {int(kind): kind for kind in HeldKind}
    if len(lines) <= record.entries or any(one.held_as not in kinds for one in told):
        raise RecordError("MEMORY_HELD: an entry without its operation, or of an unknown kind")
    holders = (
        Holder(one.nbytes, one.blocks, kinds[one.held_as], one.site, op) for one, op in zip(told, lines, strict=False)
    )
    missing = None
    if record.missing:
        missing = MissingMemory(
            record.missing, record.missing_allocated, record.missing_reserved, record.missing_site, record.failures
        )
    by_collectives = max(record.allocated - record.least, 0)
    step = _over_step(record, points)
    growth = None
    if record.growth_steps:
        op = lines[record.entries].rstrip("\0")
        growth = Growth(record.growth, record.growth_steps, bool(record.growth_equal), record.growth_site, op)
    return HeldMemory(
        record.allocated,
        record.reserved,
        tuple(holders),
        missing,
        step,
        by_collectives,
        growth,
        bool(record.expandable),
    )


def _over_step(record: records.MemoryHeld, points: list[records.MemoryPoint]) -> StepMemory | None:
    if not points:
        return None
    by_kind = {kind: tuple(getattr(one, kind.name.lower()) for one in points) for kind in HeldKind}
    return StepMemory(record.allocations, by_kind, tuple(one.most for one in points))
