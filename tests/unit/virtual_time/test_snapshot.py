"""Snapshots of the timeline: values that stay, and looking changes nothing."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emu.contract import records
from phantora_async.virtual_time import GenerationNote, HostState, Snapshot, StreamState, Timeline, Timelines

from .programs import MOST, Ahead, Program, eager, network, never, on_demand, play, programs, write
from .scripted import FixedNetwork, Script, new_fact_builder, scripts


def timeline_of(*played: Script) -> Timeline:
    timeline, fact_builder = Timeline(len(played), FixedNetwork(), 1024), new_fact_builder(len(played))
    for script in played:
        timeline.feed(script.rank, fact_builder.take(script.rank, records.decode_up(b"".join(script.records))[0]))
    return timeline


@pytest.mark.parametrize("ahead", [never, eager, on_demand])
def test_looking_while_it_runs_changes_nothing(ahead: Ahead) -> None:
    @settings(max_examples=60)
    @given(size=st.integers(1, MOST), program=programs, depth=st.integers(1, 8), seed=st.integers(0, 2**32))
    def check(size: int, program: Program, depth: int, seed: int) -> None:
        taken: list[tuple[Snapshot, str]] = []

        def look(timeline: Timeline, _: object) -> None:
            snapshot = timeline.snapshot()
            assert snapshot == timeline.snapshot()
            taken.append((snapshot, repr(snapshot)))

        looked_at = play(write(size, program, 20_000), network, seed, ahead, depth, look)
        left_alone = play(write(size, program, 20_000), network, seed, ahead, depth)
        assert looked_at.outcome == left_alone.outcome
        assert looked_at.timeline.snapshot() == left_alone.timeline.snapshot()
        assert all(repr(snapshot) == then for snapshot, then in taken)

    check()


def test_what_a_stream_waits_for_is_told_by_value() -> None:
    a, b, c = world = scripts(3)
    timeline, fact_builder = Timeline(3, FixedNetwork(), 1024), new_fact_builder(3)

    def tell_all() -> None:
        for script in world:
            timeline.feed(script.rank, fact_builder.take(script.rank, records.decode_up(b"".join(script.records))[0]))
            script.records.clear()

    tell_all()
    a.all_reduce(64, stream=2).advance(50)
    b.all_reduce(64, stream=2, after=5).wait(b.record(stream=2), stream=1).sync(stream=1)
    c.segment(100, stream=2).all_reduce(64, stream=2).advance(50)
    tell_all()
    timeline.run(1000)
    (rank,) = timeline.snapshot([1]).ranks
    assert (rank.rank, rank.state) == (1, HostState.WAITS_STREAM)
    assert rank.wait is not None
    (stream,) = rank.wait.streams
    assert (stream.id, stream.cause_id, stream.cause_state) == (1, 2, StreamState.COLLECTIVE)
    (collective,) = stream.collectives
    assert collective.description.startswith("all_reduce #0 of 64 i8")
    assert (collective.joined, collective.missing) == ((0, 1, 2), (2,))


def test_who_has_come_to_a_communicators_creation_is_told() -> None:
    first, second, _ = scripts(3)
    timeline = timeline_of(first, second, Script(2, 3))
    timeline.run(1000)
    first_rank = timeline.snapshot().ranks[0]
    assert first_rank.wait is not None
    assert first_rank.wait.creation is not None
    assert first_rank.wait.creation.arrived == (0, 1)


def test_shares_until_now_are_shown_and_not_booked() -> None:
    timeline = timeline_of(Script(0, 1).segment(1000).advance(400))
    timeline.run(1000)
    for _ in range(2):
        assert timeline.snapshot().ranks[0].shares.compute_ns == 400
        assert timeline.activity().accounts[0][0].tolist() == [0, 400]
    timeline.feed(0, records.decode_up(records.Bye.encode(100, 0, 0))[0])
    timeline.run(1000)
    assert timeline.snapshot().ranks[0].shares.compute_ns == 1000


def test_copies_have_an_account_where_no_kernel_runs() -> None:
    """A copy of 1,000 ns begins at 0, a kernel of 300 ns beside it at 100, and another copy at 1,500."""
    script = Script(0, 1)
    side = script.new_stream()
    script.segment(1000, copies=True).advance(100).segment(300, stream=side).advance(1400)
    script.segment(200, copies=True).advance(500)
    timeline = timeline_of(script)
    timeline.run(1000)
    shares = timeline.snapshot().ranks[0].shares
    assert (shares.compute_ns, shares.copies_ns) == (300, 1000 - 300 + 200)
    assert (shares.host_bound_ns, shares.idle_ns) == (2000 - 1200, 0)


def test_time_on_gpus_of_other_numbers_counts_until_the_own_one_is_used() -> None:
    """Time on one GPU counts at any instant. What is at work on the other one afterwards is no time of this rank's."""
    (a,) = scripts(1)
    timelines = Timelines(1, servers=(1,))
    timeline, fact_builder = Timeline(1, FixedNetwork(), 1024, timelines=timelines), new_fact_builder(1)
    a.add(records.StreamCreate.encode(0, 4, 1, 0, 0))
    a.segment(40, stream=4).advance(100)
    a.segment(30, stream=1).advance(200)
    a.segment(500, stream=4).advance(10).sync(stream=4).clock()
    timeline.feed(0, fact_builder.take(0, records.decode_up(b"".join(a.records))[0]))
    timeline.run(1000)
    assert timeline.now_ns == 800
    shares = timeline.snapshot([0]).ranks[0].shares
    assert shares.compute_ns == 40 + 30
    assert shares.host_bound_ns == (100 - 40) + (200 - 30) + 10
    assert shares.idle_ns == 800 - 310
    assert timeline.activity().devices == [1]


def test_a_batch_waits_while_it_has_fewer_responses_than_before() -> None:
    script = Script(0, 1)
    script.batch(3, after=100).batch(4, after=10).batch(2, after=40).batch(3, after=5).batch(4, after=6)
    script.batch(0, after=200).batch(2, after=1000).batch(1, after=7).batch(0, after=30).bye(after=50)
    timeline = timeline_of(script)
    timeline.run(1000)
    (rank,) = timeline.snapshot().ranks
    assert rank.generating_ns == 10 + 40 + 5 + 6 + 200 + 7 + 30
    assert rank.partial_ns == 5 + 6 + 30


def test_what_ranks_tell_of_responses_is_kept_with_its_instants() -> None:
    script = Script(0, 1)
    script.step(after=5).add(records.Response.encode(10, records.ResponseEventKind.ARRIVED, 3, 17))
    script.batch(1, after=7).add(records.KvBlocks.encode(1, 4, 90)).add(records.Training.encode(2)).step(after=5).bye()
    timeline = timeline_of(script)
    timeline.run(1000)
    assert timeline.generation() == {
        0: (
            GenerationNote(15, records.RESPONSE, records.ResponseEventKind.ARRIVED, 3, 17),
            GenerationNote(22, records.BATCH, 1, 0, 0),
            GenerationNote(23, records.KV_BLOCKS, 4, 90, 0),
            GenerationNote(25, records.TRAINING, 0, 0, 0),
            GenerationNote(30, records.MARKER, records.MarkerKind.STEP, 0, 0),
        )
    }
