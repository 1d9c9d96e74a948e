"""Events that listeners of virtual time are told."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emu.contract import records
from phantora_async.virtual_time import Event, HostState, NetworkModel, Timeline, UnseenFact, events
from profiles.gpu_sharing import WORK_UNIT

from .programs import MOST, Ahead, Program, eager, fixed, network, never, on_demand, play, programs, write
from .scripted import FixedNetwork, Script


class Told:
    """A ``Listener`` that keeps what it is told, by rank."""

    def __init__(self) -> None:
        self.by_rank: dict[int, list[Event]] = {}

    def on(self, rank: int, event: Event) -> None:
        self.by_rank.setdefault(rank, []).append(event)

    def comparable(self) -> dict[int, list[Event]]:
        """Collectives of two simulations are different objects. Waits that take no time are left out."""
        return {rank: list(map(_comparable, _without_empty_waits(told))) for rank, told in self.by_rank.items()}


def _without_empty_waits(told: list[Event]) -> list[Event]:
    kept: list[Event] = []
    for event in told:
        if isinstance(event, events.HostWoken):
            empty = events.HostBlocked(event.at_ns, HostState.WAITS_COMM_CREATION)
            if empty in kept:
                kept.remove(empty)
                continue
        kept.append(event)
    return kept


def _comparable(event: Event) -> Any:
    if isinstance(event, events.CollectiveDone):
        return [getattr(event, field.name) for field in fields(event) if field.name != "collective"], (
            event.collective.describe()
        )
    return event


@pytest.mark.parametrize(("ahead", "make_network", "scale"), [(eager, fixed, 1), (on_demand, network, 20_000)])
def test_listeners_are_told_what_a_conservative_simulation_tells(
    ahead: Ahead, make_network: Callable[[], NetworkModel], scale: int
) -> None:
    went_back = 0

    @settings(max_examples=60)
    @given(size=st.integers(2, MOST), program=programs, depth=st.integers(1, 8), seed=st.integers(0, 2**32))
    def check(size: int, program: Program, depth: int, seed: int) -> None:
        nonlocal went_back
        in_order, told = Told(), Told()
        play(write(size, program, scale), make_network, None, never, depth, listener=in_order)
        played = play(write(size, program, scale), make_network, seed, ahead, depth, listener=told)
        went_back += played.timeline.history.rollbacks
        assert told.comparable() == in_order.comparable()

    check()
    assert went_back, "nothing was rolled back, so this shows nothing"


def test_each_event_is_told_when_it_happens() -> None:
    one = Script(0, 1)
    one.segment(100, after=5, tail_ns=20).wait(one.record(stream=1), stream=2).segment(30, stream=2)
    one.sync(stream=2).step().bye()
    record, other = (fact for fact in facts(one) if fact.kind == records.SEGMENT)
    assert told_of(one) == [
        events.StreamCreated(0, 0, 1),
        events.StreamCreated(0, 0, 2),
        events.StreamCreated(0, 0, 3),
        events.SegmentLaunched(5, 0, 1, record.content, record.solo_ns, record.tail_work_ns),
        events.SegmentBegan(5, 1, record.solo_ns * record.contended_ns * WORK_UNIT),
        events.SegmentRate(5, 1, record.contended_ns * WORK_UNIT),
        events.StreamBlocked(5, 2, 1),
        events.SegmentLaunched(5, 0, 2, other.content, other.solo_ns, other.tail_work_ns),
        events.HostBlocked(5, HostState.WAITS_STREAM, 2),
        events.SegmentEnded(105, 1),
        events.StreamUnblocked(105, 2),
        events.SegmentBegan(105, 2, other.solo_ns * other.contended_ns * WORK_UNIT),
        events.SegmentRate(105, 2, other.contended_ns * WORK_UNIT),
        events.SegmentEnded(135, 2),
        events.HostWoken(135),
        events.StepMarked(135),
        "step 0 done at 135",
        events.HostBlocked(135, HostState.FINISHED),
    ]


def test_a_listener_hears_of_its_ranks_alone_from_when_it_listens() -> None:
    timeline, told = Timeline(2, FixedNetwork(), 1024), Told()
    for rank in range(2):
        timeline.feed(rank, facts(Script(rank, 2).segment(10).advance(5)))
    timeline.run(100)
    timeline.listen(told, [1])
    timeline.listen(told, [1])
    for rank in range(2):
        timeline.feed(rank, [UnseenFact.of(600 - 100 * rank)])
    timeline.run(100)
    assert told.by_rank == {1: [events.SegmentEnded(10, 1), events.UnseenPassed(505, 500)]}


def test_a_restart_is_told() -> None:
    timeline, told = Timeline(1, FixedNetwork(), 1024), Told()
    timeline.listen(told, [0])
    timeline.feed(0, facts(Script(0, 1).advance(40).bye()))
    timeline.run(100)
    timeline.begin_again(0)
    assert told.by_rank[0][-1] == events.Restarted(40)


def facts(script: Script) -> list[Any]:
    return records.decode_up(b"".join(script.records))[0]


def told_of(script: Script) -> list[Any]:
    timeline, told = Timeline(1, FixedNetwork(), 1024), Told()
    timeline.listen(told, [0])
    timeline.feed(0, facts(script))
    timeline.run(1000)
    return [
        f"step {event.number} done at {event.at_ns}" if isinstance(event, events.StepDone) else event
        for event in told.by_rank[0]
    ]
