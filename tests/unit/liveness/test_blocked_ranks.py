"""For how long all have been asleep, and what of it is patience lost."""

from __future__ import annotations

from typing import Any

import pytest

from emu.contract import records
from phantora_async.liveness import blocked_ranks
from phantora_async.liveness.blocked_ranks import BlockedRanks, is_news
from phantora_async.liveness.sleep_detector import Thread
from phantora_async.virtual_time import Stop, Timeline

from ..virtual_time.scripted import FixedNetwork, Script, new_fact_builder


class Machine:
    """One sleeping rank and a clock, both moved on by hand."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now_s = 100.0
        self.used_ns = 0
        monkeypatch.setattr(blocked_ranks, "monotonic", lambda: self.now_s)
        timeline, fact_builder = Timeline(1, FixedNetwork(), 1024), new_fact_builder(1)
        timeline.feed(0, fact_builder.take(0, records.decode_up(b"".join(Script(0, 1).records))[0]))
        assert timeline.run(100) is Stop.STARVED
        self.blocked_ranks = BlockedRanks(timeline, fact_builder, {0: 1}, self)

    def threads(self, pid: int) -> dict[int, Thread] | None:
        return {1: Thread("python", True, True, self.used_ns)}

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


def test_work_between_two_looks_begins_it_anew(machine: Machine) -> None:
    machine.stuck_s()
    machine.now_s += 100
    machine.used_ns += 60_000_000_000
    assert machine.stuck_s() < 20


def test_a_little_work_does_not(machine: Machine) -> None:
    machine.stuck_s()
    machine.now_s += 100
    machine.used_ns += 100_000_000
    assert machine.stuck_s() > 100


@pytest.mark.parametrize(
    ("arrived", "news"),
    [
        (records.Query.encode(30, 1, 4, 2, 0) + records.HostAdvance.encode(5), False),
        (records.ClockRead.encode(0, 1), False),
        (records.ClockRead.encode(0, 1) + records.Marker.encode(0, 1, 0), True),
    ],
)
def test_polls_are_no_news(arrived: bytes, news: bool) -> None:
    found: list[Any] = records.decode_up(arrived)[0]
    assert is_news(found) is news
