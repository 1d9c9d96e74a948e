"""What the ranks read or saved although nobody computed it: STATED_VALUE, DATA_SIZE, LOOP, CHECKPOINT records."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

from emu.contract import records
from phantora_async.errors import ProtocolError
from phantora_async.ingest.call_sites import Line


class StatedReads(NamedTuple):
    """Of one rank, at the line of one `--value`."""

    reads: int
    computed: int
    """Reads of values that were computed, which are left as they are."""


@dataclass(frozen=True, slots=True)
class WaitingLoop:
    """A loop of a rank that waits for a value that is not computed."""

    turns: int
    begins: Line
    read: Line
    dtype: str
    operation: str
    """Should have computed it; "" if unknown."""
    stated: bool
    """The value comes from `--value`."""

    def document(self, rank: int) -> dict[str, Any]:
        return {
            "rank": rank,
            "turns": self.turns,
            "loop": self.begins.document(),
            "read": self.read.document(),
            "dtype": self.dtype,
            "operation": self.operation,
            "stated": self.stated,
        }


@dataclass(slots=True)
class Checkpoint:
    """A file that a rank has written, as it was written last."""

    times: int = 0
    written: int = 0
    """Bytes."""
    uncomputed: int = 0
    """Bytes that nobody computed: 0 is in their place."""


class SizedPlace(NamedTuple):
    """Where the policy of `--data-shapes` chose the sizes of tensors."""

    operation: str
    inner: str
    """`file:line` of the innermost code that is not PyTorch's; "" if there is none."""
    line: str
    """`file:line` of the script; "" if that is unknown."""


class ChosenSizes(NamedTuple):
    """Of one rank, at one place: sums over calls."""

    calls: int
    most: int
    """What the sizes could have been."""
    chosen: int
    """What they were."""


@dataclass(slots=True)
class UncomputedReads:
    stated: dict[int, dict[int, StatedReads]] = field(default_factory=dict)
    """By the number of the `--value`, then by rank."""
    decided: dict[str, dict[int, int]] = field(default_factory=dict)
    """Lines that decide by values that nobody computed, as file:line, then by rank: reads."""
    checks: dict[int, int] = field(default_factory=dict)
    """Checks for overflow of such values, which are taken as passed, by rank."""
    sizes: dict[SizedPlace, dict[int, ChosenSizes]] = field(default_factory=dict)
    """By place, then by rank."""
    loops: dict[int, WaitingLoop] = field(default_factory=dict)
    """By rank: those that go round now."""
    checkpoints: dict[tuple[str, int], Checkpoint] = field(default_factory=dict)
    """By the file's path and the rank."""

    def take_stated(self, rank: int, record: records.StatedValue) -> None:
        """A record's totals replace those of the one before."""
        self.stated.setdefault(record.number, {})[rank] = StatedReads(record.reads, record.computed)

    def take_decided(self, rank: int, record: records.Decided) -> None:
        """A record's total replaces that of the one before."""
        place = record.payload.decode(errors="replace").rstrip("\0")
        if place:
            self.decided.setdefault(place, {})[rank] = record.reads
        else:
            self.checks[rank] = record.reads

    def take_size(self, rank: int, record: records.DataSize) -> None:
        """A record's totals replace those of the one before. Raises ProtocolError."""
        text = record.payload.decode(errors="replace").rstrip("\0").split("\n")
        if len(text) != 3:
            raise ProtocolError(rank, "DATA_SIZE: a payload of another size")
        sizes = ChosenSizes(record.calls, record.most, record.chosen)
        self.sizes.setdefault(SizedPlace(*text), {})[rank] = sizes

    def take_checkpoint(self, rank: int, record: records.Checkpoint) -> None:
        """What begins at the file's begin replaces what it had."""
        path = record.payload.rstrip(b"\0").decode(errors="replace")
        one = self.checkpoints.setdefault((path, rank), Checkpoint())
        if not record.offset:
            one.times += 1
            one.written = one.uncomputed = 0
        one.written += record.written
        one.uncomputed += record.uncomputed

    def take_loop(self, rank: int, record: records.Loop) -> None:
        """Raises ProtocolError."""
        text = record.payload.decode(errors="replace").rstrip("\0").split("\n")
        if len(text) != 6:
            raise ProtocolError(rank, "LOOP: a payload of another size")
        read_at, function, file, loop_function, dtype, operation = text
        read_file, _, read_line = read_at.rpartition(":")
        if not read_line.isdecimal():
            raise ProtocolError(rank, "LOOP: a read without a line")
        if record.turns:
            begins = Line(file, record.line, loop_function)
            read = Line(read_file, int(read_line), function)
            self.loops[rank] = WaitingLoop(record.turns, begins, read, dtype, operation, bool(record.stated))
        else:
            self.loops.pop(rank, None)
