"""Ranks that wait for something dead are told that nothing else can happen; the first in virtual time counts."""

from __future__ import annotations

from typing import Any

from emu.contract import records
from phantora_async.coordinator.reactions import Reactions
from phantora_async.errors import Deadlock
from phantora_async.faults import parse
from phantora_async.faults.effects import paces_of
from phantora_async.virtual_time import Timeline, UnseenFact
from tests.unit.virtual_time.scripted import FixedNetwork

WHY = Deadlock("deadlock: no rank can ever continue")


class Connected:
    """Three ranks."""

    def __init__(self) -> None:
        self.pids = {0: 100, 1: 101, 2: 102}
        self.sent: list[tuple[int, bytes]] = []

    def send(self, answers: list[tuple[int, bytes]]) -> None:
        self.sent += answers


def reactions(*texts: str) -> tuple[Reactions, Connected]:
    faults = [parse(text) for text in texts]
    timeline = Timeline(3, FixedNetwork(lambda collective: 1), 1024, paces=paces_of(faults, (1, 1, 1)))
    for rank in range(3):
        timeline.feed(rank, [UnseenFact.of(2_000)])
    timeline.run(100)
    assert timeline.now_ns == 2_000
    connected: Any = Connected()
    return Reactions(timeline, connected, faults), connected


def test_a_deadlock_without_a_death_is_the_scripts_own() -> None:
    for texts in ((), ("gpu 1 at 0.5x",), ("node 1 dead at 3us",)):
        told, connected = reactions(*texts)
        assert not told.begin(WHY)
        assert connected.sent == []


def test_ranks_of_dead_servers_are_not_told() -> None:
    told, connected = reactions("node 1 dead at 1us")
    assert told.begin(WHY)
    assert [(rank, records.decode_down(encoded)[0][0].at_ns) for rank, encoded in connected.sent] == [
        (0, 2_000),
        (2, 2_000),
    ]


def test_the_first_in_virtual_time_counts() -> None:
    told, _ = reactions("node 1 dead at 1us")
    told.begin(WHY)
    for rank, at_ns in ((2, 500), (0, 900), (2, 600), (0, 950)):
        told.clock(rank, at_ns)
    assert told.failed(0, untold=True), "rank 2 is still awaited"
    assert not told.failed(2, untold=False)
    assert told.text() == "NCCL's watchdogs ended ranks 0,2, the first at 0.6 µs of virtual time"
    assert told.end() == ({2: False, 0: True}, WHY)
    assert (told.take_ended_ns(), told.take_ended_ns(), told.going_on) == (600, 0, False)
