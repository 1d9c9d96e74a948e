"""Virtual time ends before the ranks do: at an instant, or where ranks are held."""

from __future__ import annotations

from random import Random

import pytest

from emu.contract import records
from phantora_async.virtual_time import HostState, Stop, Timeline

from .scripted import FixedNetwork, Script, new_fact_builder


def timeline_of(*played: Script, limit_ns: int) -> Timeline:
    timeline, fact_builder = Timeline(len(played), FixedNetwork(), 1024), new_fact_builder(len(played))
    timeline.limit_ns = limit_ns
    for script in played:
        timeline.feed(script.rank, fact_builder.take(script.rank, records.decode_up(b"".join(script.records))[0]))
    return timeline


def test_nothing_happens_from_the_limit_on() -> None:
    """A fact at the limit is not executed, one before it is; the work that goes on is counted up to the limit."""
    played = Script(0, 1).segment(1000, after=10).step(after=89).step(after=1).bye(after=500)
    timeline = timeline_of(played, limit_ns=100)
    assert timeline.run(100) is Stop.LIMIT
    assert (timeline.now_ns, timeline.hosts[0].steps) == (100, 1)
    assert timeline.snapshot().ranks[0].shares.compute_ns == 90
    assert timeline.run(100) is Stop.LIMIT


def test_a_rank_that_may_still_say_something_earlier_is_waited_for() -> None:
    timeline = timeline_of(Script(0, 2).advance(99), Script(1, 2).bye(after=500), limit_ns=100)
    assert timeline.run(100) is Stop.STARVED
    timeline.feed(0, records.decode_up(records.HostAdvance.encode(1))[0])
    assert timeline.run(100) is Stop.LIMIT


def test_so_it_is_when_the_simulation_has_gone_ahead() -> None:
    timeline = timeline_of(Script(0, 2).advance(50), Script(1, 2).segment(20, after=80).bye(after=500), limit_ns=100)
    assert timeline.run(100, ahead=True) is Stop.STARVED
    timeline.feed(0, records.decode_up(Script(0, 2).step(after=30).advance(40).records[-2])[0])
    assert timeline.run(100, ahead=True) is Stop.STARVED
    timeline.feed(0, records.decode_up(records.HostAdvance.encode(40))[0])
    assert timeline.run(100, ahead=True) is Stop.LIMIT
    assert [host.steps for host in timeline.hosts] == [1, 0]


@pytest.mark.parametrize("seed", range(5))
def test_ranks_are_held_where_they_say(seed: int) -> None:
    """A held rank takes no part in what follows; the others go on until they wait for it."""
    held = Script(0, 2).segment(500, after=10).step()
    held.add(records.StepsDone.encode(5))
    other = Script(1, 2).step(after=10).advance(1000)
    other.add(records.StepsDone.encode(7))
    parts = [records.decode_up(b"".join(script.records))[0] for script in (held, other)]
    timeline, fact_builder = Timeline(2, FixedNetwork(), 1024), new_fact_builder(2)
    random = Random(seed)
    while any(parts):
        rank = random.choice([rank for rank in range(2) if parts[rank]])
        timeline.feed(rank, fact_builder.take(rank, [parts[rank].pop(0)]))
        timeline.run(random.randint(1, 5), ahead=bool(random.randint(0, 1)))
    assert timeline.run(100) is Stop.DRAINED
    assert [host.state for host in timeline.hosts] == [HostState.HELD] * 2
    assert timeline.hosts_in(HostState.HELD) == list(timeline.hosts)
    assert timeline.hosts_in(HostState.RUNNING) == []
    assert (timeline.now_ns, [host.clock_ns for host in timeline.hosts]) == (1017, [15, 1017])
    assert timeline.snapshot().ranks[0].shares.compute_ns == 500
