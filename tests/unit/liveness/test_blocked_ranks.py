"""For how long all have been asleep, and what of it is patience lost."""

from __future__ import annotations

from typing import Any

import pytest

from emu.contract import records
from phantora_async.liveness import blocked_ranks
from phantora_async.liveness.blocked_ranks import BlockedRanks, asked, is_news
from phantora_async.liveness.sleep_detector import Seen, Thread
from phantora_async.virtual_time import Stop, Timeline

from ..virtual_time.scripted import FixedNetwork, Script, new_fact_builder


class Machine:
    """A rank that sleeps, others that ask for the time, and a clock, all moved on by hand."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, ranks: int = 1) -> None:
        self.now_s = 100.0
        self.used_ns = self.others_used_ns = 0
        self.looks: list[int] = []
        monkeypatch.setattr(blocked_ranks, "monotonic", lambda: self.now_s)
        timeline, fact_builder = Timeline(ranks, FixedNetwork(), 1024), new_fact_builder(ranks)
        for rank in range(ranks):
            script = Script(rank, ranks)
            if rank:
                script.clock(after=1000)
            timeline.feed(rank, fact_builder.take(rank, records.decode_up(b"".join(script.records))[0]))
        assert timeline.run(100) is Stop.STARVED
        self.fact_builder = fact_builder
        self.blocked_ranks = BlockedRanks(
            timeline, fact_builder, pids={rank: rank + 1 for rank in range(ranks)}, processes=self
        )

    def look(self, pid: int) -> Seen:
        self.looks.append(pid)
        threads = {pid: Thread("python", True, True, self.used_ns if pid == 1 else self.others_used_ns)}
        if pid == 1 and (self.helpers_used_ns or self.helper_runs):
            threads[900] = Thread("python", False, not self.helper_runs, self.helpers_used_ns)
        return Seen(threads, self.now_ns(), self.now_ns() + 1)

    helpers_used_ns = 0
    helper_runs = False

    def now_ns(self) -> int:
        return int(self.now_s * 1e9)

    def stuck_s(self) -> float:
        """Looks until the rank is found asleep."""
        for _ in range(20):
            self.now_s += 1
            verdict = self.blocked_ranks.look()
            if verdict.asleep:
                return verdict.stuck_s
        raise AssertionError("never asleep")


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    return Machine(monkeypatch)


def test_time_asleep_adds_up_over_polls(machine: Machine) -> None:
    before = machine.stuck_s()
    for _ in range(5):
        machine.now_s += 10
        machine.blocked_ranks.rank_spoke(0, news=False)
        machine.stuck_s()
    assert machine.stuck_s() - before > 50


def test_news_begin_it_anew(machine: Machine) -> None:
    machine.stuck_s()
    machine.now_s += 100
    machine.blocked_ranks.rank_spoke(0, news=True)
    assert machine.stuck_s() < 20


def test_other_questions_begin_it_anew_and_the_same_do_not(machine: Machine) -> None:
    """An allocator asks about one stream after the other; a loop asks the same over and over."""

    def asks(recording: int, site: int = 3) -> set[tuple[int, ...]]:
        (found,), _ = records.decode_up(records.Query.encode(30, 1, recording, 0, 2, 0, 0, 0))
        assert isinstance(found, records.Query)
        return asked([found._replace(site=site)])

    machine.stuck_s()
    for ask in (asks(1), asks(2), asks(2, site=4)):
        machine.now_s += 100
        machine.blocked_ranks.rank_spoke(0, news=False, asks=ask)
        assert machine.stuck_s() < 20
    for recording in (1, 2):
        machine.now_s += 10
        machine.blocked_ranks.rank_spoke(0, news=False, asks=asks(recording))
        machine.stuck_s()
    assert machine.stuck_s() > 20
    machine.blocked_ranks.rank_spoke(0, news=True)
    machine.stuck_s()
    machine.now_s += 100
    machine.blocked_ranks.rank_spoke(0, news=False, asks=asks(1))
    assert machine.stuck_s() < 20, "what was asked before the news counts no more"


def test_work_between_two_looks_begins_it_anew(machine: Machine) -> None:
    machine.stuck_s()
    machine.now_s += 100
    machine.used_ns += 60_000_000_000
    assert machine.stuck_s() < 20


def test_work_of_a_pool_begins_it_anew(machine: Machine) -> None:
    """Whether it was seen to work, or only has when all sleep."""
    machine.stuck_s()
    machine.now_s += 100
    machine.helpers_used_ns += 60_000_000_000
    assert machine.stuck_s() < 20
    machine.now_s += 100
    assert machine.stuck_s() > 100


def test_a_pool_that_gets_no_processor_begins_it_anew(machine: Machine) -> None:
    machine.stuck_s()
    machine.helper_runs = True
    for _ in range(100):
        machine.now_s += 1
        assert not machine.blocked_ranks.look().asleep
    machine.helper_runs = False
    assert machine.stuck_s() < 30
    assert machine.blocked_ranks.look().still_s > 100


def test_a_little_work_does_not(machine: Machine) -> None:
    machine.stuck_s()
    machine.now_s += 100
    machine.used_ns += 100_000_000
    assert machine.stuck_s() > 100


def test_a_verdict_tells_whether_ranks_asked_for_the_time(machine: Machine) -> None:
    machine.blocked_ranks.rank_spoke(0, news=False, reads=True)
    machine.stuck_s()
    assert machine.blocked_ranks.look().read_ns is None, "nobody has asked since all were asleep"
    machine.blocked_ranks.rank_spoke(0, news=False, reads=True)
    machine.stuck_s()
    assert machine.blocked_ranks.look().read_ns == 0, "no virtual time has passed"


@pytest.mark.parametrize(
    ("arrived", "news"),
    [
        (records.Query.encode(30, 1, 4, 0, 2, 0, 0, 0) + records.HostAdvance.encode(5), False),
        (records.ClockRead.encode(0, 1), False),
        (records.ClockRead.encode(0, 1) + records.Marker.encode(0, 1, 0), True),
    ],
)
def test_polls_are_no_news(arrived: bytes, news: bool) -> None:
    found: list[Any] = records.decode_up(arrived)[0]
    assert is_news(found) is news


def test_work_of_ranks_that_ask_for_the_time_begins_it_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rank 0 sleeps; rank 1 imports modules, and asks for the time in between."""
    machine = Machine(monkeypatch, ranks=2)
    machine.stuck_s()
    machine.now_s += 100
    machine.others_used_ns += 60_000_000_000
    assert machine.stuck_s() < 20
    machine.now_s += 100
    assert machine.stuck_s() > 100


def test_ranks_that_slept_and_have_not_spoken_are_looked_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """One look at each process tells whether its threads have run since."""
    machine = Machine(monkeypatch, ranks=3)
    machine.stuck_s()
    machine.looks.clear()
    machine.blocked_ranks.rank_spoke(1, news=True)
    machine.blocked_ranks.told()
    machine.stuck_s()
    assert {pid: machine.looks.count(pid) for pid in (1, 2, 3)} == {1: 1, 2: 3, 3: 1}


def test_who_waits_for_another_rank_s_call_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rank 0 has asked where the sources of another rank's output are, ranks 1 and 2 what time it is."""
    machine = Machine(monkeypatch, ranks=3)
    monkeypatch.setattr(machine.fact_builder.sources, "waits", lambda rank: rank == 0)
    assert machine.blocked_ranks.wait_for_calls() == [], "it has not been seen to sleep"
    machine.stuck_s()
    assert machine.blocked_ranks.wait_for_calls() == [0]
    machine.fact_builder.rank_info[2].questions = 0
    assert machine.blocked_ranks.wait_for_calls() == [], "rank 2 may run"
    machine.fact_builder.rank_info[2].questions = 1
    machine.blocked_ranks.rank_spoke(0, news=True)
    assert machine.blocked_ranks.wait_for_calls() == [], "it has woken up"


def test_a_rank_that_has_not_asked_may_be_woken_by_anything(machine: Machine) -> None:
    machine.stuck_s()
    assert machine.blocked_ranks.wait_for_calls() == []
