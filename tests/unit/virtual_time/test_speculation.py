"""Effects of going ahead: on history, on answers, on memory. That it changes no result is ``test_oracle``'s subject."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest

from emu.contract import records
from phantora_async.virtual_time import EAGER, NEVER, ON_DEMAND, POLICIES, SpeculationPolicy, Stop, Timeline

from .scripted import FixedNetwork, Script, new_fact_builder, number, scripts


def timeline_of(*played: Script) -> Timeline:
    timeline = Timeline(len(played), FixedNetwork(), 1024)
    fact_builder = new_fact_builder(len(played))
    for script in played:
        timeline.feed(script.rank, fact_builder.take(script.rank, records.decode_up(b"".join(script.records))[0]))
    return timeline


def say(timeline: Timeline, rank: int, *encoded: bytes) -> None:
    timeline.feed(rank, records.decode_up(b"".join(encoded))[0])


def answers(timeline: Timeline) -> list[tuple[int, int]]:
    return [(rank, number(answer)) for rank, answer in timeline.take_answers()]


def test_ahead_of_a_silent_rank_nothing_leaves() -> None:
    timeline = timeline_of(Script(0, 2).advance(50), Script(1, 2).segment(100).sync().clock().bye())
    assert timeline.run(100, ahead=True) is Stop.STARVED
    assert timeline.starved == 0
    assert (timeline.now_ns, timeline.ahead_ns) == (50, 100)
    assert answers(timeline) == []
    say(timeline, 0, records.HostAdvance.encode(51))
    assert timeline.run(100) is Stop.STARVED
    assert answers(timeline) == [(1, 100)]


def test_who_has_nothing_to_do_with_a_late_fact_keeps_its_history() -> None:
    busy = [Script(rank, 3).segment(500).segment(70, stream=2, after=10) for rank in range(2)]
    timeline = timeline_of(*busy, Script(2, 3))
    timeline.run(100, ahead=True)
    one, other, _ = timeline.hosts
    assert one.checkpoints == [10, 80, 500]
    kept = list(other.checkpoints)
    say(timeline, 0, records.Segment.encode(50, 1, 1, 5, 5, 5, 0, 0))
    assert timeline.run(100, ahead=True) is Stop.STARVED
    assert timeline.history.events == 2  # at 80 and 500: rank 0 launched something at 60
    assert one.checkpoints == [10, 60, 80, 500, 505]
    assert other.checkpoints == kept


def test_a_late_fact_takes_back_the_collective_and_both_its_members() -> None:
    """Rank 0's stream reaches a collective at 1000, long after rank 0's host fell silent at 10."""
    world = scripts(3)
    a, b, c = world
    fact_builder, timeline = new_fact_builder(3), Timeline(3, FixedNetwork(), 1024)

    def tell_all() -> None:
        for script in world:
            timeline.feed(script.rank, fact_builder.take(script.rank, records.decode_up(b"".join(script.records))[0]))
            script.records.clear()

    tell_all()
    a.segment(1000).all_reduce(64, stream=1, after=10)
    b.all_reduce(64).sync().clock()
    c.all_reduce(64).sync(stream=1).segment(10_000)
    tell_all()
    assert timeline.run(1000, ahead=True) is Stop.STARVED
    assert timeline.snapshot([]).collectives == 1
    assert [host.clock_ns for host in timeline.hosts] == [10, 1064, 0]
    assert answers(timeline) == []
    # At 15, rank 0 makes its stream 1 wait for nothing: the segment goes on, and the collective begins again at 1000.
    say(timeline, 0, records.EventRecord.encode(5, 3, 0, 9, 0), records.StreamWait.encode(0, 1, 0, 9))
    assert timeline.run(1000, ahead=True) is Stop.STARVED
    assert timeline.history.rollbacks >= 3
    assert timeline.snapshot([]).collectives == 1
    for rank in (0, 2):
        say(timeline, rank, records.Bye.encode(20_000, 0, 0))
    assert timeline.run(1000, ahead=True) is Stop.STARVED
    assert answers(timeline) == [(1, 1064)]


def test_an_answer_leaves_once_though_its_question_is_simulated_again() -> None:
    timeline = timeline_of(Script(0, 2).clock(after=10), Script(1, 2).segment(100).sync().advance(20))
    timeline.run(100, ahead=True)
    assert answers(timeline) == [(0, 10)]
    timeline.pass_over([1])  # takes back all that is ahead
    timeline.run(100)
    assert answers(timeline) == []
    say(timeline, 0, records.ClockRead.encode(200, 2))
    say(timeline, 1, records.HostAdvance.encode(300))
    timeline.run(100, ahead=True)
    assert answers(timeline) == [(0, 210)]


def test_a_policy_must_be_known() -> None:
    with pytest.raises(ValueError, match="speculation 'often'"):
        SpeculationPolicy(timeline_of(Script(0, 1)), "often")


def test_only_on_demand_looks_ahead_and_only_a_little() -> None:
    def looked(name: str) -> tuple[int, int]:
        script = Script(1, 2)
        for _ in range(100):
            script.segment(10).sync()
        timeline = timeline_of(Script(0, 2).advance(500), script)
        policy = SpeculationPolicy(timeline, name)
        policy.run(10_000)
        before = timeline.events
        policy.look_ahead()
        assert timeline.events == before, "virtual time had moved: there is something to see without guessing"
        policy.look_ahead()
        return before, timeline.events - before

    for name in POLICIES:
        before, more = looked(name)
        assert (0 < more <= before / 4) if name == ON_DEMAND else not more


STEPS = 10_000


@pytest.mark.parametrize("name", [NEVER, EAGER, ON_DEMAND])
def test_memory_stays_flat_over_many_steps(name: str) -> None:
    """Rank 1 is always a few records late; what is kept at the end is no more than after a hundredth of the steps."""
    chance = random.Random(4)
    world = scripts(2)
    timeline, fact_builder = Timeline(2, FixedNetwork(), 1024), new_fact_builder(2)
    policy = SpeculationPolicy(timeline, name)
    sizes: list[int] = []
    for script in world:
        timeline.feed(script.rank, fact_builder.take(script.rank, records.decode_up(b"".join(script.records))[0]))
    for step in range(STEPS):
        for script in world:
            script.records.clear()
            script.segment(50, after=3 + chance.randint(0, 9)).all_reduce(20)
            recording = script.record(stream=2, drop=step)
            script.wait(recording, stream=1).sync().step()
        portions = [fact_builder.take(script.rank, records.decode_up(b"".join(script.records))[0]) for script in world]
        for rank, cut in ((0, 99), (1, chance.randint(0, 5))):
            timeline.feed(rank, portions[rank][:cut])
            while policy.run(200) is Stop.BUDGET:
                continue
            policy.look_ahead()
            policy.look_ahead()
            timeline.feed(rank, portions[rank][cut:])
        while policy.run(200) is Stop.BUDGET:
            continue
        if step % (STEPS // 100) == STEPS // 100 - 1:
            sizes.append(timeline.engine.held())
    assert len(timeline.results.step_instants) in (STEPS - 1, STEPS)
    assert all(after >= before for (before, _), (after, _) in pairwise(timeline.results.step_instants))
    assert max(sizes[1:]) <= 1.5 * max(sizes[:10])
    assert max(sizes) < 30_000
    if name == EAGER:
        assert timeline.history.rollbacks > STEPS / 10
