"""Compares the answers of a replay with those that the program was given: where they differ, it might have gone another
way.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from emu.contract import records
from phantora_async.errors import PathChanged
from phantora_async.recording import Recording
from phantora_async.recording.given_answers import ANSWERS, RecordedAnswers
from phantora_async.replaying.differences import QUERIES, Allowed
from phantora_async.replaying.loops import in_loops
from phantora_async.replaying.site_lines import line_of

Flags = NDArray[np.bool_]


class Compared(NamedTuple):
    """The numbers of answers of one kind, of those that differ, and of those among them that operators of PyTorch asked
    for.
    """

    answers: int
    other: int
    other_inside: int


class _Differences(NamedTuple):
    """The differences between one rank's answers to one question, in order."""

    other: Flags
    steers: Flags
    """True for an answer that was true and is false, or the reverse, which may change the program's way."""
    state: NDArray[np.int64]
    """For each answer: whether work is complete now."""


def compare(recording: Recording, given: Sequence[RecordedAnswers], allowed: Allowed) -> dict[str, Compared]:
    """Compares the answers, by question. `given`: the answers of each rank that has a timeline of its own. Times may
    differ. Whether work is complete may not, unless an operator of PyTorch has asked: it looks which work is complete
    to let go of the memory that this held. Raises PathChanged.
    """
    totals = {question: Compared(0, 0, 0) for question in ANSWERS.values()}
    for rank, now in zip(recording.own, given, strict=True):
        then = recording.answers(rank)
        for question, found in _differences(recording.stream(rank).rows, then, now).items():
            inside = np.zeros(len(found.other), bool)
            if found.other.any():
                by_torch = asked_inside(recording, rank, question)[: len(inside)]
                inside[: len(by_torch)] = by_torch
            before = totals[question]
            totals[question] = Compared(
                before.answers + len(found.other),
                before.other + int(found.other.sum()),
                before.other_inside + int((found.other & inside).sum()),
            )
            steering = np.flatnonzero(found.other & found.steers & ~inside)
            if len(steering) and QUERIES not in allowed:
                number = int(steering[0])
                raise _changed(recording, rank, question, number, bool(found.state[number]))
    return {records.NAMES[question].lower(): total for question, total in totals.items()}


def _differences(rows: NDArray[np.void], then: RecordedAnswers, now: RecordedAnswers) -> dict[int, _Differences]:
    """The differences by kind of question. A run that ends early may have asked less or more than the replay: questions
    of both count. A loop that ends when work is complete is a wait: its turns are no decisions.
    """
    queries = min(len(then.queries), len(now.queries))
    elapsed = min(len(then.elapsed), len(now.elapsed))
    clocks = min(len(then.clocks), len(now.clocks))
    states = then.queries[:queries] != now.queries[:queries]
    states &= ~in_loops(rows, then.queries)[:queries]
    ready = now.elapsed[:elapsed, 1] & 1
    times = then.elapsed[:elapsed] != now.elapsed[:elapsed]
    read = then.clocks[:clocks] != now.clocks[:clocks]
    return {
        ANSWERS["queries"]: _Differences(states, states, now.queries[:queries].astype(np.int64)),
        ANSWERS["elapsed"]: _Differences(times.any(1), times[:, 1], ready),
        ANSWERS["clocks"]: _Differences(read, np.zeros(clocks, bool), np.zeros(clocks, np.int64)),
    }


def asked_inside(recording: Recording, rank: int, question: int) -> Flags:
    """For each question in order: true if an operator of PyTorch has asked it."""
    history = recording.history(rank)
    found: Flags = history["inside"][history["kind"] == question] != 0
    return found


def _changed(recording: Recording, rank: int, question: int, number: int, complete: bool) -> PathChanged:
    rows = recording.stream(rank).rows
    place = int(np.flatnonzero(rows["kind"] == question)[number])
    where = line_of(recording, rank, int(rows["site"][place]))
    states = ("complete", "not complete") if complete else ("not complete", "complete")
    return PathChanged(
        f"the replay leaves the recorded path: rank {rank} asked at {where} {records.WORDS[question][2]} "
        f"({records.NAMES[question]}), its question {number + 1} of this kind; recorded: {states[1]}, now: {states[0]}",
        "what the script does after another answer is not recorded: run it; or replay with --allow queries, if "
        "the answer decides nothing but when memory is released",
    )
