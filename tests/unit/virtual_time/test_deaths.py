"""Dead GPUs and servers: exact instants."""

from __future__ import annotations

import random

import pytest

from emu.contract import records
from phantora_async.faults import parse
from phantora_async.faults.effects import paces_of
from phantora_async.faults.pace import NEVER, Paces
from phantora_async.virtual_time import Stop

from .scripted import Script, play, scripts


def paces(*texts: str, servers: tuple[int, ...] = (1,)) -> Paces:
    return paces_of([parse(text) for text in texts], servers)


def one() -> Script:
    return Script(0, 1)


@pytest.mark.parametrize(
    ("fault", "goes_on_ns"),
    [
        ("gpu 0 dead at 410ns", 410),
        ("gpu 0 dead at 5ns", 10),  # before it waits
        ("gpu 0 dead at 1010ns", 1010),  # its work is done at that instant
        ("gpu 0 dead at 2us", 1010),
        ("gpu 0 dead at 410ns for 100ns", 410),
    ],
)
def test_a_host_waits_no_longer_for_a_gpu_that_dies(fault: str, goes_on_ns: int) -> None:
    script = one().segment(1000, after=10).sync(stream=1).clock().clock(after=7).bye()
    assert play([script], paces=paces(fault)).clocks(0) == [goes_on_ns, goes_on_ns + 7]


def test_waits_for_an_event_and_for_the_device_end() -> None:
    script = one().segment(1000, stream=1)
    recording = script.record(stream=1)
    script.sync(recording=recording).clock().sync().clock().bye()
    assert play([script], paces=paces("gpu 0 dead at 300ns")).clocks(0) == [300, 300]


def test_a_full_launch_queue_does_not_hold_the_host_of_a_dead_gpu() -> None:
    script = one()
    for _ in range(4):
        script.segment(1000, stream=1)
    script.clock().bye()
    assert play([script], queue_depth=2).clocks(0) == [2000]
    assert play([script], queue_depth=2, paces=paces("gpu 0 dead at 300ns")).clocks(0) == [300]


def test_others_wait_for_ever_for_the_gpu_that_died() -> None:
    first, second = scripts(2)
    for script in (first, second):
        script.segment(1000, stream=1)
        recording = script.record(stream=1)
        script.wait(recording, stream=2).all_reduce(100, stream=2).sync(stream=2).clock().bye()
    result = play([first, second], paces=paces("gpu 1 dead at 500ns", servers=(1, 1)))
    assert (result.clocks(0), result.clocks(1)) == ([], [500])
    assert result.stop is Stop.DRAINED


def test_a_kernel_of_a_dead_gpu_that_is_aborted_takes_part_in_nothing() -> None:
    """The last member may come late, so that the abort is taken back while it arrives."""
    world = scripts(3)
    for script, after in zip(world, (10, 20, 50), strict=True):
        script.all_reduce(100, after=after)
    world[0].add(records.CommDestroy.encode(90, world[0].comm, 1, 0))
    for script in world:
        script.sync(stream=2).clock().bye()
    dead = paces("gpu 0 dead at 5ns", servers=(1, 1, 1))
    for shuffle in (None, *map(random.Random, range(30))):
        result = play(world, paces=dead, shuffle=shuffle, ahead=1.0)
        assert ([result.clocks(rank) for rank in range(3)], result.begun) == ([[100], [], []], [])


def test_a_dead_server_goes_nowhere() -> None:
    first, second = scripts(2)
    for script in (first, second):
        script.clock(after=100).advance(100).clock(after=1).segment(1000).sync(stream=1).clock().bye()
    result = play([first, second], paces=paces("node 1 dead at 150ns", servers=(1, 1)))
    assert (result.clocks(0), result.clocks(1)) == ([100, 201, 1201], [100])  # the sleep does not end


def test_a_dead_server_with_jitter_goes_nowhere() -> None:
    """Its pace never stops changing, but is 0 for ever."""
    dead = paces("host 0 jitter 20% every 1us seed 5", "node 0 dead at 150ns")
    assert dead.hosts[0].lasts(100, 1000) == NEVER
    result = play([one().clock().clock(after=1000).bye()], paces=dead)
    assert (result.clocks(0), result.stop) == ([0], Stop.DRAINED)


def test_arrivals_in_any_order_give_the_same() -> None:
    def clocks(shuffle: random.Random | None) -> list[list[int]]:
        world = scripts(4)
        for script in world:
            for _ in range(3):
                script.segment(1000, stream=1).sync(stream=1).clock()
                script.all_reduce(100, stream=2).sync(stream=2).clock()
            script.bye()
        result = play(world, shuffle=shuffle, paces=paces("gpu 2 dead at 1500ns", servers=(2, 2)))
        return [result.clocks(rank) for rank in range(4)]

    expected = clocks(None)
    assert expected[0] == [1000, 1100, 2100]
    assert expected[2] == [1000, 1100, *[1500] * 4]
    assert all(clocks(random.Random(seed)) == expected for seed in range(20))
