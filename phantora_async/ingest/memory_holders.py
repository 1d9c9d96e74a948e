"""Describes who holds a rank's device memory at its peak, as its hook library reports it."""

from __future__ import annotations

from dataclasses import dataclass

from emu.contract import records
from emu.contract.records import HeldKind
from emu.contract.records_definition import RecordError


@dataclass(frozen=True, slots=True)
class Holder:
    """Blocks of memory that one operation asked for at one line of the script, to hold the same kind of data."""

    nbytes: int
    blocks: int
    held_as: HeldKind
    site: int
    """The number of the rank's call site; 0: not known."""
    op: str
    """The operation's name; empty if not known. Without site and operation: all other blocks of this kind."""


@dataclass(frozen=True, slots=True)
class MissingMemory:
    """An allocation that failed."""

    nbytes: int
    """The bytes that it asked for."""
    allocated: int
    reserved: int
    """The bytes that PyTorch's allocator had given out, and those that it had of the device, at that moment; both with
    what the device held for others, such as NCCL. If NCCL asked, which cannot use the allocator's cache: all that the
    device held.
    """
    site: int
    failures: int
    """The number of failed allocations; this is the last one."""


@dataclass(frozen=True, slots=True)
class StepMemory:
    """The memory that is allocated over the step with the peak. Each point stands for equally many allocations, the
    last one for as many or fewer.
    """

    allocations: int
    by_kind: dict[HeldKind, tuple[int, ...]]
    """The bytes at the end of each point, by kind."""
    most: tuple[int, ...]
    """The most bytes at one time in each point."""


@dataclass(frozen=True, slots=True)
class Growth:
    """Memory that is allocated at the end of steps, and grows from step to step."""

    nbytes: int
    """The bytes by which it grows in a step: the mean of the last ones."""
    steps: int
    """The number of steps in a row with growth; the last step is one of them."""
    equal: bool
    """True if the last steps have grown equally."""
    site: int
    """The call site that asked for most of it, as in a ``Holder``."""
    op: str


@dataclass(frozen=True, slots=True)
class HeldMemory:
    """The holders of the memory of one device of a rank."""

    allocated: int
    """The bytes allocated at the peak: the sum of all holders."""
    reserved: int
    """The bytes that PyTorch's allocator had reserved at that moment."""
    holders: tuple[Holder, ...]
    """The holders, the largest first, then the rest of each kind."""
    missing: MissingMemory | None
    over_step: StepMemory | None = None
    by_collectives: int = 0
    """The bytes by which the peak would be lower if no collective kept a block longer than the program does."""
    growth: Growth | None = None
    expandable: bool = False
    """True if PyTorch's allocator has segments that it maps piece by piece (expandable_segments)."""


def from_record(record: records.MemoryHeld) -> HeldMemory:
    """Decodes the record. Raises RecordError."""
    entries = records.MemoryHolder.decode_all(record.payload, 0, record.entries)
    points_at = record.entries * records.MemoryHolder.size()
    points = records.MemoryPoint.decode_all(record.payload, points_at, record.points)
    text = record.payload[points_at + record.points * records.MemoryPoint.size() :]
    lines = text.decode(errors="replace").split("\n")
    kinds = {int(kind): kind for kind in HeldKind}
    if len(lines) <= record.entries or any(one.held_as not in kinds for one in entries):
        raise RecordError("MEMORY_HELD: an entry without its operation, or of an unknown kind")
    holders = (
        Holder(one.nbytes, one.blocks, kinds[one.held_as], one.site, op)
        for one, op in zip(entries, lines, strict=False)
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
