"""Slow GPUs and hosts: exact instants."""

from __future__ import annotations

from itertools import pairwise

import pytest

from phantora_async.faults import parse
from phantora_async.faults.effects import paces_of
from phantora_async.faults.pace import Paces
from phantora_async.virtual_time import Event, events

from .programs import fixed, never
from .programs import play as play_all
from .scripted import Script, play, scripts


def one() -> Script:
    return Script(0, 1)


def paces(*texts: str, servers: tuple[int, ...] = (1,)) -> Paces:
    return paces_of([parse(text) for text in texts], servers)


@pytest.mark.parametrize(
    ("fault", "end_ns"),
    [
        ("gpu 0 at 0.5x", 2010),  # launched at 10
        ("gpu 0 at 0.5x from 410ns", 1610),  # 400 done, 600 at half speed
        ("gpu 0 at 0.5x from 410ns until 610ns", 1110),  # 400, 100 in the 200 that follow, 500
        ("gpu 0 at 0.7x from 410ns", 1268),  # 600 / 0.7 = 857.14
        ("gpu 0 at 0.5x from 5us", 1010),
        ("gpu 0 ecc retry 300ns at 500ns", 1310),
        ("gpu 0 ecc retry 300ns at 1010ns", 1010),  # nothing is left
    ],
)
def test_a_kernel_in_flight_stretches_from_the_instant_on(fault: str, end_ns: int) -> None:
    script = one().segment(1000, after=10).sync(stream=1).clock().bye()
    assert play([script], paces=paces(fault)).clocks(0) == [end_ns]


@pytest.mark.parametrize(("fault", "room"), [("host 0 at 0.5x", 0), ("gpu 0 at 0.5x", 1 + 1024)])
def test_a_slow_host_is_told_that_it_cannot_know_the_time(fault: str, room: int) -> None:
    assert play([one().clock().bye()], paces=paces(fault)).rooms[0] == [room]


def test_the_gpu_of_another_rank_keeps_its_speed() -> None:
    first, second = scripts(2)
    for script in (first, second):
        script.segment(1000).sync(stream=1).clock().bye()
    result = play([first, second], paces=paces("gpu 1 at 0.5x", servers=(1, 1)))
    assert (result.clocks(0), result.clocks(1)) == ([1000], [2000])


def test_others_wait_for_the_slow_one() -> None:
    first, second = scripts(2)
    for script in (first, second):
        script.segment(1000, stream=1)
        recording = script.record(stream=1)
        script.wait(recording, stream=2).all_reduce(100, stream=2).sync(stream=2).clock().bye()
    result = play([first, second], paces=paces("gpu 1 at 0.5x from 500ns", servers=(1, 1)))
    assert (result.clocks(0), result.clocks(1)) == ([1600], [1600])  # 500 + 500 / 0.5 + 100


def test_streams_that_share_a_slow_gpu() -> None:
    # Each at 1 / 1.8 of its rate: 1000 ns of work in 1800 at full speed, in 3600 at half of it.
    script = one().segment(1000, contended_ns=1500).segment(1000, contended_ns=1500, stream=2)
    script.sync(stream=1).clock().sync().clock().bye()
    assert play([script], paces=paces("gpu 0 at 0.5x")).clocks(0) == [3601, 3601]


def test_a_slow_gpu_beside_nccl() -> None:
    # Beside NCCL from 0 to 900 at 1 / 1.5 of half the speed: 300 ns of work. The other 700 take 1400.
    (script,) = scripts(1)
    script.all_reduce(900, stream=3).segment(1000, contended_ns=1500).sync(stream=1).clock().bye()
    assert play([script], paces=paces("gpu 0 at 0.5x")).clocks(0) == [2300]


def test_late_launches_run_at_the_gpus_speed() -> None:
    # The last kernel of 100 ns is launched 900 ns after the first.
    script = one().segment(200, tail_ns=1000, tail_work_ns=100, after=50).sync(stream=1).clock().bye()
    assert play([script], paces=paces("gpu 0 at 0.5x")).clocks(0) == [50 + 900 + 200]


def test_a_slow_host_launches_late() -> None:
    script = one().segment(200, tail_ns=1000, tail_work_ns=100, after=50).sync(stream=1).clock(after=30).bye()
    assert play([script], paces=paces("host 0 at 0.5x")).clocks(0) == [100 + 1800 + 100 + 60]


def test_a_host_is_slow_from_an_instant_on() -> None:
    script = one().clock(after=1000).clock(after=1000).bye()
    assert play([script], paces=paces("host 0 at 0.25x from 1500ns")).clocks(0) == [1000, 1500 + 2000]


def test_a_slow_host_sleeps_no_longer() -> None:
    script = one().advance(1000).clock(after=10).bye()
    assert play([script], paces=paces("host 0 at 0.5x")).clocks(0) == [1020]


def test_all_ranks_of_a_server_have_its_host() -> None:
    world = scripts(3)
    for script in world:
        script.clock(after=100).bye()
    result = play(world, paces=paces("host 1 at 0.5x", servers=(1, 2)))
    assert [result.clocks(rank) for rank in range(3)] == [[100], [200], [200]]


def test_jitter_is_the_seeds() -> None:
    def clocks(fault: str) -> list[list[int]]:
        world = scripts(2)
        for script in world:
            for _ in range(3):
                script.clock(after=100_000)
            script.bye()
        result = play(world, paces=paces(fault, servers=(2,)))
        return [result.clocks(0), result.clocks(1)]

    fault = "host 0 jitter 10% every 50us seed 7"
    first, second = clocks(fault)
    assert clocks(fault) == [first, second]
    assert first != second, "each rank has a speed of its own"
    assert clocks("host 0 jitter 10% every 50us seed 8") != [first, second]
    for instants in (first, second):
        assert all(abs(after - before - 100_000) <= 12_000 for before, after in pairwise([0, *instants]))
        assert instants != [100_000, 200_000, 300_000]


class _Heard:
    def __init__(self) -> None:
        self.rates: list[tuple[int, int]] = []
        self.work = 0

    def on(self, rank: int, event: Event) -> None:
        if isinstance(event, events.SegmentBegan):
            self.work = event.work
        elif isinstance(event, events.SegmentRate):
            self.rates.append((event.at_ns, event.rate))


def test_listeners_hear_how_the_pace_changes_the_rate() -> None:
    heard = _Heard()
    script = one().segment(1000).sync().bye()
    play_all([script], fixed, None, never, 1024, listener=heard, paces=paces("gpu 0 at 0.5x from 400ns until 800ns"))
    assert [at_ns for at_ns, _ in heard.rates] == [0, 400, 800]
    full, half, again = (rate for _, rate in heard.rates)
    assert full == 2 * half == again
    assert 400 * full + 400 * half + 400 * full == heard.work
