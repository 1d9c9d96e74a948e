"""Plays steps that nobody ran: the record of one is executed again and again, in virtual time alone.

A step of a rank is its rows behind one step's end up to the next. If two consecutive steps of every rank have equal
rows, that is the same work, host times, waits and questions, the later one can stand for further steps. What follows it
in the recording comes after them. Collectives and recordings of events are named by how many came before, so that a
copy of the rows is the next step.

Whether work is complete PyTorch itself asks, too, to let go of memory (see ``answers.compare``). How often depends on
how far the host is ahead; steps that differ in this alone count as equal, and the report says that they do.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from emu.contract import records
from phantora_async.errors import PathChanged, UsageError
from phantora_async.recording import Recording
from phantora_async.recording.given_answers import ANSWERS, RecordedAnswers
from phantora_async.recording.recording import OutsideSleep, Stream
from phantora_async.recording.rows import MASK, made_recordings, named_recordings, step_ends, totals
from phantora_async.replaying.answers import asked_inside
from phantora_async.replaying.site_lines import line_of
from phantora_async.virtual_time.facts import ends_step

MOST_NBYTES = 2 << 30
"""The most bytes of the differing rows of all ranks."""
COUNTED = records.marked("STEP")
"""The records that each step adds to those beside the op stream."""


class StepRows(NamedTuple):
    """The place of the repeated step among a rank's rows."""

    before: int
    """The row at which the step before it begins."""
    begin: int
    end: int


@dataclass(frozen=True, slots=True)
class Repetition:
    """A repetition: the step `step`, counted from 1, is executed `count` more times."""

    step: int
    count: int
    places: Mapping[int, StepRows]
    """The place of the step in each rank's rows."""
    asked_otherwise: tuple[int, ...]
    """The ranks whose PyTorch has asked differently in the step before."""

    def stream(self, rank: int, stream: Stream) -> Stream:
        """The rank's rows with the played steps. `stream`: as recorded, or priced anew."""
        _, begin, end = place = self.places[rank]
        played = np.tile(stream.rows[begin:end], self.count)
        rows = np.concatenate([stream.rows[:end], played, self._behind(stream.rows, place)])
        counted = np.cumsum(totals(stream.rows))
        first, last = int(counted[begin - 1]), int(counted[end - 1])
        step = stream.counters[first:last]
        gains = [now - then for now, then in zip(step[-1], stream.counters[first - 1], strict=True)] if step else []
        counters = list(stream.counters[:last])
        counters += [_later(one, gains, number) for number in range(1, self.count + 1) for one in step]
        counters += [_later(one, gains, self.count) if gains else one for one in stream.counters[last:]]
        return Stream(rows, counters)

    def _behind(self, rows: NDArray[Any], place: StepRows) -> NDArray[Any]:
        """The rows recorded behind the step. A recording of an event from before the last two steps lies further back
        than it did; a recording from one of these steps is that of the last played steps.
        """
        _, numbers = made_recordings(rows)
        more = np.uint64(self.count) * (numbers[place.end - 1] - numbers[place.begin - 1])
        old = numbers[place.before - 1] if place.before else np.uint64(0)
        behind, at = rows[place.end :].copy(), numbers[place.end :]
        values = behind["values"]
        for which, column in named_recordings(behind):
            chosen = which & ((at - values[:, column]) & np.uint64(MASK) <= old)
            values[chosen, column] += more
        return behind

    def side(self, rank: int, side: Sequence[Any]) -> list[Any]:
        """The rank's records beside the op stream, with those of the played steps."""
        ends = [place for place, one in enumerate(side) if ends_step(one)]
        begin, end = ends[self.step - 2] + 1, ends[self.step - 1] + 1
        step = [one for one in side[begin:end] if one.kind in COUNTED]
        return [*side[:end], *(step * self.count), *side[end:]]

    def moved(self, recording: Recording) -> Recording:
        """The recording with the sleeps behind the step moved."""

        def row(rank: int, number: int) -> int:
            place = self.places[rank]
            return number + (place.end - place.begin) * self.count if number >= place.end else number

        found = copy.copy(recording)
        found.sleeps = [
            OutsideSleep(one.rank, row(one.rank, one.row), one.for_ns, one.cause, _cause_row(one, row))
            for one in recording.sleeps
        ]
        return found

    def recorded(self, recording: Recording, rank: int, given: RecordedAnswers, allow: bool) -> RecordedAnswers:
        """The answers to the questions that the recording has. Raises PathChanged if in a played step the rank got
        another answer whether work is complete, unless that is to be allowed, or PyTorch itself has asked (see
        ``answers.compare``): a real step might have gone another way then.
        """
        kinds = recording.stream(rank).rows["kind"]
        _, begin, end = self.places[rank]
        parts = {}
        for name, kind in ANSWERS.items():
            answers = getattr(given, name)
            first, last = int((kinds[:begin] == kind).sum()), int((kinds[:end] == kind).sum())
            played = answers[last : last + (last - first) * self.count]
            parts[name] = np.concatenate([answers[:last], answers[last + len(played) :]])
            if name == "queries" and not allow and len(played):
                other = played != np.resize(answers[first:last], len(played))
                if other.any():
                    by_torch = asked_inside(recording, rank, kind)[first:last]
                    other[: len(by_torch) * self.count] &= ~np.tile(by_torch, self.count)
                    self._check(recording, rank, np.flatnonzero(other).tolist(), last - first)
        return RecordedAnswers(**parts)

    def _check(self, recording: Recording, rank: int, other: Sequence[int], each: int) -> None:
        """Raises PathChanged for the first of them. `other`: the questions of the played steps that are answered
        differently; `each`: the questions of a step.
        """
        if not other:
            return
        number = other[0]
        rows = recording.stream(rank).rows[slice(*self.places[rank][1:])]
        row = rows[np.flatnonzero(rows["kind"] == records.QUERY)[number % each]]
        raise PathChanged(
            f"step {self.step + 1 + number // each} cannot be played from the record of step {self.step}: rank {rank} "
            f"asks at {line_of(recording, rank, int(row['site']))} whether GPU work is complete, and is told otherwise",
            "record more steps; or --allow queries, if the answer decides nothing but when memory is released",
        )


def repetition_of(recording: Recording, steps: int) -> Repetition:
    """The repetition with which every rank does `steps` steps: of the recording's steps, the latest one is repeated
    that equals the one before on every rank. Raises UsageError.
    """
    ends = {recording.key_of(rank): step_ends(recording.stream(rank).rows).tolist() for rank in recording.own}
    counts = {len(found) for found in ends.values()}
    if len(counts) > 1:
        raise UsageError(f"--steps {steps}: ranks of the recording have done different numbers of steps")
    recorded = counts.pop()
    if steps <= recorded:
        raise UsageError(f"--steps {steps}: the recording has {recorded} steps, all of which are executed")
    looks = Looks(recording)
    why = "" if recorded > 2 else f"it has {recorded} of at least 3 steps"
    for step in range(recorded, 2, -1):
        places: dict[int, StepRows] = {}
        otherwise = []
        for rank in recording.own:
            at = ends[recording.key_of(rank)]
            places[rank] = StepRows(at[step - 3] + 1, at[step - 2] + 1, at[step - 1] + 1)
            other, asked = _other(recording, rank, places[rank], step, looks)
            if asked:
                otherwise.append(rank)
            if other:
                why = why or other  # the reason of the latest step is kept
                break
        else:
            found = Repetition(step, steps - recorded, places, tuple(otherwise))
            _check_size(recording, found)
            return found
    raise UsageError(
        f"--steps {steps}: no step of the recording can stand for others: {why}",
        "record more steps: the first ones differ, because memory, caches and communicators are made in them",
    )


def _other(recording: Recording, rank: int, place: StepRows, step: int, looks: Looks) -> tuple[str, bool]:
    """The reason why the step cannot stand for others, "" if it can; and whether PyTorch itself has asked differently
    in it.
    """
    rows, by_torch = recording.stream(rank).rows, looks.of(rank)
    before, now = (
        _without(rows[begin:end], by_torch[begin:end])
        for begin, end in ((place.before, place.begin), (place.begin, place.end))
    )
    same = min(len(before), len(now))
    other = np.flatnonzero(before[:same] != now[:same])
    if len(other) or len(before) != len(now):
        row = now[int(other[0])] if len(other) else (now if len(now) > same else before)[same]
        where = line_of(recording, rank, int(row["site"]))
        return f"rank {rank} did not do the same in steps {step - 1} and {step}, first in {where}", False
    if np.isin(now["kind"], [*records.marked("ONCE")]).any():
        return f"rank {rank} makes communicators or streams in step {step}", False
    for sleep in recording.sleeps:
        slept = sleep.rank == rank and place.before < sleep.row < place.end
        woke = sleep.cause == rank and place.before < sleep.cause_rows < place.end
        if slept or woke:
            return f"rank {rank} waited in step {step} or the one before where no record tells", False
    whole = rows[place.before : place.begin], rows[place.begin : place.end]
    return "", len(whole[0]) != len(whole[1]) or bool((whole[0] != whole[1]).any())


class Looks:
    """Finds the rows that are questions of PyTorch itself whether work is complete."""

    def __init__(self, recording: Recording) -> None:
        self._recording = recording
        self._known: dict[tuple[Any, ...], NDArray[np.bool_]] = {}

    def of(self, rank: int) -> NDArray[np.bool_]:
        key = self._recording.key_of(rank)
        if key not in self._known:
            rows = self._recording.stream(rank).rows
            found = np.zeros(len(rows), bool)
            asked = np.flatnonzero(rows["kind"] == records.QUERY)
            inside = asked_inside(self._recording, rank, records.QUERY)[: len(asked)]
            found[asked[: len(inside)]] = inside
            self._known[key] = found
        return self._known[key]


def _without(rows: NDArray[Any], looks: NDArray[np.bool_]) -> NDArray[Any]:
    """The rows without these questions, and without the host time that they divide."""
    kept = rows[~looks].copy()
    kept["host_ns"][np.concatenate([[False], looks[:-1]])[~looks]] = 0
    return kept


def _check_size(recording: Recording, repetition: Repetition) -> None:
    sizes = {
        recording.key_of(rank): (place.end - place.begin) * recording.stream(rank).rows.itemsize
        for rank, place in repetition.places.items()
    }
    nbytes = sum(sizes.values()) * repetition.count
    if nbytes > MOST_NBYTES:
        raise UsageError(
            f"--steps: {repetition.count:,} more steps need {nbytes >> 20:,} MiB, of at most {MOST_NBYTES >> 20:,}"
        )


def _later(fields: tuple[Any, ...], gains: Sequence[Any], steps: int) -> tuple[Any, ...]:
    return tuple(value + steps * gain for value, gain in zip(fields, gains, strict=True))


def _cause_row(sleep: OutsideSleep, row: Any) -> int:
    return row(sleep.cause, sleep.cause_rows) if sleep.cause >= 0 else sleep.cause_rows
