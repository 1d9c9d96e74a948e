"""Keeps the answers that virtual time has given one rank."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from emu.contract import records

ANSWERS = {"queries": records.QUERY, "elapsed": records.ELAPSED, "clocks": records.CLOCK_READ}
"""The question to each part of ``RecordedAnswers``."""
_DONE, _ELAPSED, _CLOCK = (records.REPLY_OF[question] for question in ANSWERS.values())
_WORD = 16
"""The offset of the fields of an encoded answer."""


@dataclass(frozen=True, slots=True, eq=False)
class RecordedAnswers:
    """The answers of one rank, each kind in the order of the questions."""

    queries: NDArray[np.uint8]
    elapsed: NDArray[np.int64]
    """The nanoseconds, and 1 if both events were complete."""
    clocks: NDArray[np.int64]


@dataclass(slots=True)
class GivenAnswers:
    """Collects ``RecordedAnswers`` as bytes while a run gives its answers."""

    queries: bytearray = field(default_factory=bytearray)
    elapsed: bytearray = field(default_factory=bytearray)
    clocks: bytearray = field(default_factory=bytearray)

    def add(self, encoded: bytes) -> None:
        kind = int.from_bytes(encoded[:2], "little")
        if kind == _DONE:
            self.queries.append(encoded[_WORD])
        elif kind == _CLOCK:
            self.clocks += encoded[_WORD : _WORD + 8]
        elif kind == _ELAPSED:
            self.elapsed += encoded[_WORD : _WORD + 12] + bytes(4)

    def recorded(self) -> RecordedAnswers:
        return recorded_answers(bytes(self.queries), bytes(self.elapsed), bytes(self.clocks))


def recorded_answers(queries: bytes, elapsed: bytes, clocks: bytes) -> RecordedAnswers:
    """The answers in these bytes. Raises ValueError for a part of an answer."""
    return RecordedAnswers(
        np.frombuffer(queries, np.uint8),
        np.frombuffer(elapsed, "<i8").reshape(-1, 2),
        np.frombuffer(clocks, "<i8"),
    )
