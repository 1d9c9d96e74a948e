"""Ranks that sleep where no record tells of it."""

from __future__ import annotations

from emu.contract import records
from phantora_async.virtual_time import Stop, Timeline

from .scripted import FixedNetwork, Script, new_fact_builder, number


def timeline_of(*played: Script) -> Timeline:
    timeline, fact_builder = Timeline(len(played), FixedNetwork(), 1024), new_fact_builder(len(played))
    for script in played:
        timeline.feed(script.rank, fact_builder.take(script.rank, records.decode_up(b"".join(script.records))[0]))
    return timeline


def say(timeline: Timeline, rank: int, encoded: bytes) -> None:
    timeline.feed(rank, records.decode_up(encoded)[0])


def answers(timeline: Timeline) -> list[tuple[int, int]]:
    return [(rank, number(answer)) for rank, answer in timeline.take_answers()]


def test_a_rank_that_says_nothing_holds_time_at_its_clock() -> None:
    timeline = timeline_of(Script(0, 2).advance(50), Script(1, 2).clock(after=80).bye())
    assert timeline.run(100) is Stop.STARVED
    assert timeline.starved == 0
    assert answers(timeline) == []
    say(timeline, 0, records.HostAdvance.encode(29))
    assert timeline.run(100) is Stop.STARVED
    assert answers(timeline) == []
    say(timeline, 0, records.HostAdvance.encode(2))
    assert timeline.run(100) is Stop.STARVED
    assert answers(timeline) == [(1, 80)]


def test_a_simultaneous_fact_of_a_lower_rank_comes_first() -> None:
    timeline = timeline_of(Script(0, 2).advance(80), Script(1, 2).clock(after=80).bye())
    assert timeline.run(100) is Stop.STARVED
    assert answers(timeline) == []  # rank 0 may say something else at 80


def test_passing_over_lets_one_answer_go() -> None:
    timeline = timeline_of(Script(0, 3).advance(10), Script(1, 3).clock(after=500), Script(2, 3).clock(after=700).bye())
    timeline.run(100)
    timeline.pass_over([0])
    assert timeline.run(100) is Stop.STARVED
    assert answers(timeline) == [(1, 500)]
    assert timeline.starved == 0
    assert [host.clock_ns for host in timeline.hosts[:2]] == [500, 500]
    # Woken by what rank 1 did after its answer, rank 0 goes on from there.
    say(timeline, 0, records.ClockRead.encode(5, 9))
    say(timeline, 1, records.Bye.encode(1000, 0, 0))
    timeline.run(100)
    assert answers(timeline) == [(0, 505)]


def test_passing_over_does_not_depend_on_how_often_it_is_done() -> None:
    def clocks(times: int) -> list[int]:
        timeline = timeline_of(Script(0, 2).advance(10), Script(1, 2).segment(300).sync())
        for _ in range(times):
            timeline.run(100)
            timeline.pass_over([0, 1])
        timeline.run(100)
        return [host.clock_ns for host in timeline.hosts]

    assert clocks(1) == clocks(5) == [300, 300]


def test_one_that_is_awake_stops_the_passing() -> None:
    timeline = timeline_of(Script(0, 3), Script(1, 3).advance(40), Script(2, 3).clock(after=100))
    timeline.run(100)
    timeline.pass_over([0])
    assert timeline.run(100) is Stop.STARVED
    assert answers(timeline) == []
    assert timeline.starved == 0  # back, at the instant that was reached
    assert timeline.hosts[0].clock_ns == 40
