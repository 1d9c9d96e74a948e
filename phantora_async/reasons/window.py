"""Makes the step that is explained into facts of all ranks that can be executed alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from emu.contract import records
from emu.contract.records import ScopeKind
from phantora_async.reasons.last_steps import LastSteps
from phantora_async.virtual_time import Collective, NcclKernelFact, StepFigures, UnseenFact
from phantora_async.virtual_time.results import LOGGED_RANK, WARM_UP

Facts = list[Any]
_NAMING = records.naming("recording_number")


class NoStepError(Exception):
    """There is no step to explain. The message says why."""


@dataclass(frozen=True, slots=True)
class Window:
    """The facts from a step's end on. The step that is explained lies between the markers ``first`` and ``last``."""

    facts: list[Facts]
    """The facts of each rank."""
    first: int
    """The marker before the step, counted from 0 among the markers of a rank's facts; -1: the step begins with the
    facts.
    """
    last: int
    step: int
    """The step's number as the report counts: the first step of the run is 1."""
    step_ns: int
    """The step time in ns that the run found."""
    begin_ns: int = 0
    """The instant of the run at which the facts begin."""


def window(kept: LastSteps, figures: Sequence[Sequence[StepFigures]]) -> Window:
    """Chooses the step. `figures`: the last step ends of each rank, as virtual time has found them. Raises
    NoStepError.
    """
    if kept.missing:
        raise NoStepError(kept.missing)
    if not all(figures):
        raise NoStepError("a rank has not finished an optimizer step")
    done = min(ends[-1].number for ends in figures)
    last = done - 1 if done > WARM_UP + 1 else done  # one of those whose time the report tells
    if last < 1:
        raise NoStepError("a rank has finished only one optimizer step")
    start = max(last - 2, -1) if last > 1 else -1
    if any(start + 1 < rank.first or last >= rank.first + len(rank.steps) for rank in kept.ranks):
        raise NoStepError("the ranks' last finished steps were too many steps apart when the run ended")
    own = {end.number: end.device_ns for end in figures[LOGGED_RANK]}
    if not {last - 1, last} <= own.keys():
        raise NoStepError("rank 0 was too many steps ahead of the others when the run ended")
    begins = [_host_ns(ends, start) for ends in figures]
    facts = [
        _begin(rank.streams_at(start), since := rank.since(start), at_ns - min(begins)) + since
        for rank, at_ns in zip(kept.ranks, begins, strict=True)
    ]
    before = last - 1 - (start + 1)
    return Window(_complete(facts), before, before + 1, last + 1, own[last] - own[last - 1], min(begins))


def _host_ns(ends: Sequence[StepFigures], number: int) -> int:
    return next((end.host_ns for end in ends if end.number == number), 0)


def _begin(streams: Sequence[Any], facts: Facts, for_ns: int) -> Facts:
    """The facts that bring a rank to the state in which its facts begin: its streams, and the events that were recorded
    before, as complete.
    """
    recordings = _recorded_before(facts)
    if recordings and not streams:
        raise NoStepError("a rank waits for an event on a stream that was destroyed before")
    made = [
        records.EventRecord(records.EVENT_RECORD, 0, 0, 0, streams[0].stream, 0, recording, 0, b"")
        for recording in recordings
    ]
    return [*streams, *made, UnseenFact.of(for_ns)]


def _recorded_before(facts: Facts) -> list[int]:
    """The event recordings that the facts name and have not made."""
    named: dict[int, None] = {}
    made: set[int] = set()
    for fact in facts:
        if fact.kind not in _NAMING or getattr(fact, "scope", ScopeKind.EVENT) != ScopeKind.EVENT:
            continue
        if fact.kind == records.EVENT_RECORD:
            made.add(fact.recording)
        uses = [getattr(fact, name) for name in _NAMING[fact.kind]]
        named.update((number, None) for number in uses if number and number not in made)
    return list(named)


def _complete(facts: list[Facts]) -> list[Facts]:
    """The facts without collectives of which some member's call lies outside. At the end, each host waits for ever."""
    called: Counter[Collective] = Counter()
    for rank in facts:
        for fact in rank:
            if isinstance(fact, NcclKernelFact):
                called.update(fact.collectives)
    (bye,), _ = records.decode_up(records.Bye.encode(0, 0, 0))
    return [[_within(fact, called) for fact in rank if fact.kind != records.BYE] + [bye] for rank in facts]


def _within(fact: Any, called: Counter[Collective]) -> Any:
    if not isinstance(fact, NcclKernelFact):
        return fact
    whole = tuple(one for one in fact.collectives if called[one] == len(one.ranks))
    return fact if len(whole) == len(fact.collectives) else fact._replace(collectives=whole)
