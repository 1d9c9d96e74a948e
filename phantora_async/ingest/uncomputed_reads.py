"""Counts the values that ranks read or saved although nobody computed them: STATED_VALUE, DATA_SIZE, LOOP and
CHECKPOINT records.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from emu.contract import records
from phantora_async.errors import ProtocolError
from phantora_async.ingest.call_sites import Line


class StatedReads(NamedTuple):
    """The reads of one rank at the line of one `--value`."""

    reads: int
    computed: int
    """The reads of values that were computed, which are left as they are."""


@dataclass(frozen=True, slots=True)
class WaitingLoop:
    """A loop of a rank that waits for a value that is not computed."""

    turns: int
    begins: Line
    read: Line
    dtype: str
    operation: str
    """The operation that should have computed the value; "" if unknown."""
    stated: bool
    """True if the value comes from `--value`."""

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
    """A file that a rank has written; the figures are those of the last time."""

    times: int = 0
    written: int = 0
    """The bytes that were written."""
    uncomputed: int = 0
    """The bytes that nobody computed: zeros are in their place."""


def path_of(path: str, rank: int, other: int) -> str:
    """The file that `other` writes where `rank` writes `path`: the one with its own number in the place of the rank's,
    which is looked for behind the word "rank", then in the file's name, then in the folders. The same file, if the path
    does not have the rank's number.
    """
    numbers = [found for found in re.finditer(r"\d+", path) if int(found[0]) == rank]
    if rank == other or not numbers:
        return path
    name = path.rfind("/") + 1
    behind_word = (one for one in reversed(numbers) if re.search(r"rank[^/\d]?$", path[: one.start()], re.IGNORECASE))
    in_name = (one for one in numbers if one.start() >= name)
    found = next(behind_word, None) or next(in_name, None) or numbers[-1]
    return f"{path[: found.start()]}{other:0{len(found[0])}}{path[found.end() :]}"


class SizedPlace(NamedTuple):
    """A place where the policy of `--data-shapes` chose the sizes of tensors."""

    operation: str
    inner: str
    """`file:line` of the innermost code that is not PyTorch's; "" if there is none."""
    line: str
    """`file:line` of the script; "" if that is unknown."""


class ChosenSizes(NamedTuple):
    """The choices of sizes on one rank at one place: sums over calls."""

    calls: int
    most: int
    """The largest sizes that were possible."""
    chosen: int
    """The sizes that were chosen."""


@dataclass(slots=True)
class UncomputedReads:
    stated: dict[int, dict[int, StatedReads]] = field(default_factory=dict)
    """The reads by the number of the `--value`, then by rank."""
    decided: dict[str, dict[int, int]] = field(default_factory=dict)
    """The reads by lines that decide by values that nobody computed, as file:line, then by rank."""
    checks: dict[int, int] = field(default_factory=dict)
    """The number of checks for overflow of such values, which are taken as passed, by rank."""
    sizes: dict[SizedPlace, dict[int, ChosenSizes]] = field(default_factory=dict)
    """The choices by place, then by rank."""
    loops: dict[int, WaitingLoop] = field(default_factory=dict)
    """The loops that go round now, by rank."""
    checkpoints: dict[tuple[str, int], Checkpoint] = field(default_factory=dict)
    """The files by path and rank."""

    def take_stated(self, rank: int, record: records.StatedValue) -> None:
        """Takes a record. Its totals replace those of the one before."""
        self.stated.setdefault(record.number, {})[rank] = StatedReads(record.reads, record.computed)

    def take_decided(self, rank: int, record: records.Decided) -> None:
        """Takes a record. Its total replaces that of the one before."""
        place = record.payload.decode(errors="replace").rstrip("\0")
        if place:
            self.decided.setdefault(place, {})[rank] = record.reads
        else:
            self.checks[rank] = record.reads

    def take_size(self, rank: int, record: records.DataSize) -> None:
        """Takes a record. Its totals replace those of the one before. Raises ProtocolError."""
        text = record.payload.decode(errors="replace").rstrip("\0").split("\n")
        if len(text) != 3:
            raise ProtocolError(rank, "DATA_SIZE: a payload of another size")
        sizes = ChosenSizes(record.calls, record.most, record.chosen)
        self.sizes.setdefault(SizedPlace(*text), {})[rank] = sizes

    def take_checkpoint(self, rank: int, record: records.Checkpoint) -> None:
        """Takes a record. Data at the beginning of the file starts the file anew: earlier sizes are dropped."""
        path = record.payload.rstrip(b"\0").decode(errors="replace")
        one = self.checkpoints.setdefault((path, rank), Checkpoint())
        if not record.offset:
            one.times += 1
            one.written = one.uncomputed = 0
        one.written += record.written
        one.uncomputed += record.uncomputed

    def written(self, sharing: Mapping[int, Sequence[int]]) -> Iterator[tuple[str, int, Checkpoint]]:
        """Yields each file with the rank that has written it, sorted. `sharing`: for each rank, those that write as it
        does, each into the file of its own number.
        """
        yield from sorted(
            (
                (path_of(path, rank, other), other, one)
                for (path, rank), one in self.checkpoints.items()
                for other in sharing.get(rank, (rank,))
            ),
            key=lambda one: one[:2],
        )

    def take_loop(self, rank: int, record: records.Loop) -> None:
        """Takes a record. Raises ProtocolError."""
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
