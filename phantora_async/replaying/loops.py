"""Finds loops that ask whether one work is complete, in recorded rows.

Such a loop is a wait: it ends when the work is complete, also on another machine, where that takes fewer or more turns.
A loop is a row of questions about the same work with nothing in between, the last of which was answered that it is
complete; one question alone is no loop, unless the hook library has reported that it is one (QUERY's `turns`).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from emu.contract import records
from emu.contract.records import LoopKind
from phantora_async.recording.recording import Stream

Flags = NDArray[np.bool_]
Places = NDArray[np.intp]


def loops_of(rows: NDArray[np.void], answers: NDArray[np.uint8]) -> tuple[Places, Places]:
    """The number of the first question of each loop, and of the one behind its last, counted among all questions of
    this kind. `answers`: the recorded answers.
    """
    asked = np.flatnonzero(rows["kind"] == records.QUERY)[: len(answers)]
    given = answers[: len(asked)]
    if not len(asked):
        return np.empty(0, np.intp), np.empty(0, np.intp)
    streams, values = rows["stream"][asked], rows["values"][asked]
    goes_on = (
        (np.diff(asked) == 1)
        & (streams[1:] == streams[:-1])
        & (values[1:, :3] == values[:-1, :3]).all(1)
        & (values[1:, 2] == 0)
        & (given[:-1] == 0)
    )
    first = np.flatnonzero(np.concatenate([[True], ~goes_on]))
    end = np.append(first[1:], len(asked))
    chosen = ((end - first > 1) | (values[first, 3] > 0)) & (given[end - 1] != 0)
    return first[chosen], end[chosen]


def in_loops(rows: NDArray[np.void], answers: NDArray[np.uint8]) -> Flags:
    """For each question of this kind: true if it belongs to a loop."""
    change = np.zeros(len(answers) + 1, np.int64)
    first, end = loops_of(rows, answers)
    change[first] += 1
    change[end] -= 1
    found: Flags = np.cumsum(change)[:-1] > 0
    return found


def marked(stream: Stream, answers: NDArray[np.uint8]) -> Stream:
    """The stream with the questions of its loops marked for the engine (native/hosts.c says how)."""
    first, end = loops_of(stream.rows, answers)
    if not len(first):
        return stream
    rows = stream.rows.copy()
    asked = np.flatnonzero(rows["kind"] == records.QUERY)
    for begin, behind in zip(first.tolist(), end.tolist(), strict=True):
        places = asked[begin:behind]
        number = np.arange(behind - begin)
        rows["values"][places, 4] = number[::-1]
        rows["values"][places, 5] = 1 + np.maximum(LoopKind.FREE - 1 - number, 0)
    return Stream(rows, stream.counters)
