"""Collectives, contention and pipelines between ranks: exact instants."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emu.contract import records
from emu.contract.records import NcclKind
from phantora_async.errors import Deadlock, Mismatch
from phantora_async.virtual_time import Stop

from .scripted import Script, play, scripts


def test_a_collective_starts_with_its_last_member() -> None:
    a, b = scripts(2)
    a.all_reduce(500, after=10).sync(stream=2).clock()
    b.all_reduce(500, after=100).sync(stream=2).clock()
    result = play([a.bye(), b.bye()])
    assert result.clocks(0) == result.clocks(1) == [600]


def test_members_go_on_when_the_last_has_asked_for_the_communicator() -> None:
    comm = scripts(2)[0].comm
    a = Script(0, 2, comm).join_world(after=10).clock()
    b = Script(1, 2, comm).join_world(after=70).clock(after=1)
    result = play([a.bye(), b.bye()])
    assert (result.clocks(0), result.clocks(1)) == ([70], [71])


def test_compute_beside_a_resident_kernel_is_slower() -> None:
    # Rank 0's kernel is resident from 100 (waiting for its peer until 400) to 900; its segment has done 100 of
    # 1000 ns of work by then, does 800 / 1.5 = 533.3 in the next 800 ns, and the last 366.7 alone: to 1266.7.
    a, b = scripts(2)
    a.segment(1000, contended_ns=1500).all_reduce(500, after=100).sync(stream=1).clock().sync(stream=2).clock()
    b.all_reduce(500, after=400).sync(stream=2).clock()
    result = play([a.bye(), b.bye()])
    assert result.clocks(0) == [1267, 1267]
    assert result.clocks(1) == [900]


def test_rates_that_change_often_lose_nothing() -> None:
    # 30 kernels of 7 ns, one every 14 ns from 14 on: the segment does 3 ns of its work in 7 ns beside one, 7 alone.
    (script,) = scripts(1)
    script.segment(700, contended_ns=1633)
    for _ in range(30):
        script.all_reduce(7, after=14)
    script.sync(stream=1).clock()
    # 14 done at 14, 10 more every 14 ns: 314 at 434, the last 386 alone.
    assert play([script.bye()]).clocks(0) == [820]


def test_two_resident_kernels_are_no_worse_than_one() -> None:
    (script,) = scripts(1)
    script.segment(1000, contended_ns=2000)
    script.all_reduce(400, stream=2).all_reduce(400, stream=3, after=200).sync(stream=1).clock()
    # Beside a kernel from 0 to 600: 300 of the work; the rest alone.
    assert play([script.bye()]).clocks(0) == [1300]


def test_a_host_bound_segment_hides_contention() -> None:
    (script,) = scripts(1)
    script.all_reduce(400).segment(100, contended_ns=150, tail_ns=900).sync(stream=1).clock()
    assert play([script.bye()]).clocks(0) == [900]


def test_overlap_of_compute_and_communication_through_events() -> None:
    first, second = scripts(2)
    for script in (first, second):
        script.segment(1000)
        ready = script.record()
        script.wait(ready, stream=2).all_reduce(300)
        done = script.record(stream=2)
        script.segment(500).wait(done, stream=1).segment(50).sync(stream=1).clock().bye()
    assert play([first, second]).clocks(1) == [1550]


def test_a_pipeline_of_sends_and_receives() -> None:
    first, second, third = scripts(3)
    for _ in range(2):
        first.segment(100)
        ready = first.record()
        first.wait(ready, stream=2).send(1, 10)
    for _ in range(2):
        second.receive(0, 10)
        came = second.record(stream=2)
        second.wait(came, stream=1).segment(100)
        done = second.record()
        second.wait(done, stream=3).send(2, 10, stream=3)
    for _ in range(2):
        third.receive(1, 10)
    third.sync().clock()
    # Micro-batch 1: 100 compute, 10 send, 100 compute, 10 send = 220; the second one 100 behind.
    assert play([first.bye(), second.bye(), third.bye()]).clocks(2) == [320]


def test_a_group_is_done_when_all_its_calls_are() -> None:
    a, b = scripts(2)
    for script, peer in ((a, 1), (b, 0)):
        script.launch(
            script.op(NcclKind.SEND, 100 if peer else 700, peer=peer),
            script.op(NcclKind.RECV, 700 if peer else 100, peer=peer),
        )
        script.sync().clock().bye()
    result = play([a, b])
    assert result.clocks(0) == result.clocks(1) == [700]


def test_a_rank_may_send_to_itself() -> None:
    (a,) = scripts(1)
    a.launch(a.op(NcclKind.SEND, 30), a.op(NcclKind.RECV, 30)).sync().clock()
    assert play([a.bye()]).clocks(0) == [30]


def test_an_aborted_communicator_releases_its_own_kernels() -> None:
    a, b = scripts(2)
    a.all_reduce(5).all_reduce(5).add(records.CommDestroy.encode(40, a.comm, 1, 0)).sync().clock()
    result = play([a.bye(), b])
    assert result.clocks(0) == []  # rank 1 could still call until its own clock moves on
    result = play([a, b.advance(100)])
    assert result.clocks(0) == [40]


def test_waiting_for_peers_and_moving_data_are_told_apart() -> None:
    a, b = scripts(2)
    a.segment(50).all_reduce(300, after=100).sync().step().bye()
    b.segment(50).all_reduce(300, after=250).sync().step().bye()
    shares = play([a, b]).timeline.snapshot([0]).ranks[0].shares
    assert (shares.compute_ns, shares.host_bound_ns, shares.peers_ns, shares.transfer_ns) == (50, 50, 150, 300)
    assert shares.communication_ns == 450


def test_mismatched_collectives_name_both_sides() -> None:
    a, b = scripts(2)
    a.all_reduce(8)
    b.launch(b.op(NcclKind.BROADCAST, 8))
    with pytest.raises(
        Mismatch, match=r"ranks 0: all_reduce #0 of 8 i8 .*\n  ranks 1: broadcast #0 of 8 i8 root rank 0"
    ):
        play([a, b])


def test_mismatched_sizes_of_a_message() -> None:
    a, b = scripts(2)
    with pytest.raises(Mismatch, match="send #0 of 8 i8 to rank 1\n  ranks 1: recv #0 of 9 i8 from rank 0"):
        play([a.send(1, 8), b.receive(0, 9)])


def test_a_missing_rank_is_found_when_it_ends() -> None:
    a, b = scripts(2)
    with pytest.raises(Deadlock, match="rank 1 ended without calling all_reduce #0 of 8 i8"):
        play([a.all_reduce(8), b.bye()])


def test_ranks_that_wait_for_each_other_drain_without_an_end() -> None:
    a, b = scripts(2)
    a.receive(1, 8).sync().send(1, 8).bye()
    b.receive(0, 8).sync().send(0, 8).bye()
    # Facts behind the wait have come too; virtual time never reaches them.
    assert play([a, b]).stop is Stop.DRAINED


_action = st.one_of(
    st.tuples(st.just("segment"), st.integers(1, 2), st.integers(1, 400), st.integers(0, 300), st.integers(0, 500)),
    st.tuples(st.just("event"), st.integers(1, 3), st.integers(1, 3)),
    st.tuples(st.just("sync"), st.integers(0, 3)),
    st.tuples(st.just("clock"), st.integers(0, 50)),
    st.tuples(st.just("all_reduce"), st.integers(1, 300), st.integers(1, 3), st.lists(st.integers(0, 90), min_size=4)),
    st.tuples(st.just("send"), st.integers(0, 3), st.integers(1, 3), st.integers(1, 300)),
    st.tuples(
        st.just("query"),
    ),
    st.tuples(
        st.just("step"),
    ),
)


def _write(world: list[Script], rank: int, action: tuple[Any, ...]) -> None:
    """Writes one action of a random program; collectives and messages are written for all who take part."""
    script = world[rank]
    match action:
        case ("segment", stream, solo_ns, more_ns, tail_ns):
            script.segment(solo_ns, stream=stream, contended_ns=solo_ns + more_ns, tail_ns=tail_ns, after=solo_ns % 7)
        case ("event", source, target):
            recording = script.record(stream=source, after=1)
            script.wait(recording, stream=target)
        case ("sync", stream):
            script.sync(stream=stream, after=2)
        case ("clock", after):
            script.clock(after=after)
        case ("all_reduce", count, stream, afters):
            for member, after in zip(world, afters, strict=False):
                member.all_reduce(count, stream=stream, after=after)
        case ("send", other, stream, count):
            other %= len(world)
            if other != rank:
                script.send(other, count, stream=stream)
                world[other].receive(rank, count, stream=stream, after=3)
        case ("query",):
            script.query(script.record(stream=2))
        case ("step",):
            script.step()


@settings(max_examples=400)
@given(
    size=st.integers(1, 4),
    program=st.lists(st.tuples(st.integers(0, 3), _action), max_size=40),
    depth=st.integers(1, 8),
    seed=st.integers(0, 2**32),
)
def test_the_order_of_arrival_decides_nothing(size: int, program: list[tuple[int, Any]], depth: int, seed: int) -> None:
    def world() -> list[Script]:
        written = scripts(size)
        for rank, action in program:
            _write(written, rank % size, action)
        return [script.sync().clock().bye() for script in written]

    plain = play(world(), queue_depth=depth)
    shuffled = play(world(), queue_depth=depth, shuffle=random.Random(seed))
    assert shuffled.answers == plain.answers
    assert shuffled.begun == plain.begun
    assert (shuffled.end_ns, shuffled.stop) == (plain.end_ns, plain.stop)
    one, other = plain.timeline.snapshot(), shuffled.timeline.snapshot()
    assert [(rank.shares, rank.clock_ns) for rank in one.ranks] == [
        (rank.shares, rank.clock_ns) for rank in other.ranks
    ]
    assert one.step_instants == other.step_instants
