"""Streams, events and hosts of one rank: exact instants."""

from __future__ import annotations

import pytest

from emu.contract import records
from emu.contract.records import ScopeKind
from phantora_async.errors import ProtocolError
from phantora_async.virtual_time import Stop

from .scripted import Script, play, scripts


def one() -> Script:
    return Script(0, 1)


def test_a_stream_runs_behind_its_host() -> None:
    script = one().segment(1000, after=10).segment(500, after=10).clock(after=10).sync(stream=1).clock()
    assert play([script.bye()]).clocks(0) == [30, 1510]


def test_an_idle_stream_starts_when_the_launch_comes() -> None:
    script = one().segment(100, after=10).segment(100, after=500).sync(stream=1).clock()
    assert play([script.bye()]).clocks(0) == [610]


def test_a_segment_ends_no_earlier_than_its_last_launches_allow() -> None:
    # Two kernels of 100 ns, the second launched 900 ns after the first.
    script = one().segment(200, tail_ns=1000, after=50).sync(stream=1).clock()
    assert play([script.bye()]).clocks(0) == [1050]


def test_the_tail_does_not_matter_behind_other_work() -> None:
    script = one().segment(5000).segment(200, tail_ns=1000, after=50).sync(stream=1).clock()
    assert play([script.bye()]).clocks(0) == [5200]


def test_events_order_streams() -> None:
    script = one().segment(1000, stream=1)
    recording = script.record(stream=1)
    script.segment(300, stream=2).wait(recording, stream=2).segment(200, stream=2)
    assert play([script.sync(stream=2).clock().bye()]).clocks(0) == [1200]


def test_a_mark_recorded_again_leaves_earlier_waits_alone() -> None:
    script = one().segment(1000, stream=1)
    first = script.record(stream=1)
    script.wait(first, stream=2).segment(10, stream=2)
    script.segment(9000, stream=1)
    second = script.record(stream=1, drop=first)
    script.sync(stream=2).clock().sync(recording=second).clock()
    assert play([script.bye()]).clocks(0) == [1010, 10000]


def test_waits_and_marks_without_work_between_them_take_no_time() -> None:
    script = one().segment(100, stream=1)
    for _ in range(2000):  # deeper than Python's stack
        there = script.record(stream=1)
        script.wait(there, stream=2)
        back = script.record(stream=2)
        script.wait(back, stream=1)
    assert play([script.sync().clock().bye()]).clocks(0) == [100]


def test_host_waits_for_a_mark_a_stream_the_device() -> None:
    script = one().segment(100, stream=1)
    recording = script.record(stream=1)
    script.segment(100, stream=1).segment(700, stream=2)
    script.sync(recording=recording).clock().sync(stream=1).clock().sync().clock(after=5)
    assert play([script.bye()]).clocks(0) == [100, 200, 705]


def test_elapsed_time_is_between_completions() -> None:
    script = one()
    start = script.record()
    script.segment(1234, after=20)
    end = script.record(after=1)
    script.elapsed(start, end).sync(recording=end).elapsed(start, end)
    assert play([script.bye()]).clocks(0) == [0, 1254]  # not ready, then ready


def test_query_sees_what_is_complete_at_that_instant() -> None:
    script = one().segment(100)
    recording = script.record()
    script.query(recording, after=99).query(recording, after=1)
    assert play([script.bye()]).clocks(0) == [0, 1]


def test_a_query_may_ask_whether_work_has_been_complete_for_so_long() -> None:
    script = one().segment(100)
    recording = script.record()
    script.query(recording, after=159, since_ns=60).query(recording, after=1, since_ns=60)
    assert play([script.bye()]).clocks(0) == [0, 1]


def test_asking_for_ever_takes_time_even_on_a_free_host() -> None:
    script = one().segment(1_000_000)
    recording = script.record()
    for _ in range(2000):
        script.query(recording)
    answers = play([script.bye()]).clocks(0)
    assert answers[0] == 0
    assert answers[-1] == 1


def test_asking_for_a_minute_takes_few_questions_and_tells_its_end() -> None:
    script = one().segment(60_000_000_000)
    recording = script.record()
    for _ in range(11_000):
        script.query(recording)
    *answers, end_ns = play([script.clock().bye()]).clocks(0)
    assert answers.count(1) > 500
    assert 60_000_000_000 <= end_ns <= 60_100_000_000


def test_reading_the_clock_a_few_times_takes_no_time() -> None:
    script = one().advance(7)
    for _ in range(50):
        script.clock()
    assert play([script.bye()]).clocks(0) == [7] * 50


def test_the_host_waits_for_room_in_the_launch_queue() -> None:
    script = one()
    for _ in range(4):
        script.segment(1000, launches=5, after=10)
    # Two segments fit: the third waits for the first's end at 1010, the fourth for the second's.
    assert play([script.clock().bye()], queue_depth=10).clocks(0) == [2010]


def test_the_time_is_told_with_the_room_for_launches() -> None:
    """So that a rank knows how many it can make before its host may have to wait."""
    script = one().clock().segment(1000, launches=3).segment(1000, launches=4, stream=2).clock()
    script.segment(1000, launches=6, stream=2).clock().sync().clock()
    assert play([script.bye()], queue_depth=10).rooms[0] == [1 + 10, 1 + 6, 1 + 0, 1 + 10]


def test_a_segment_larger_than_the_queue_waits_for_an_empty_one() -> None:
    script = one().segment(1000, launches=5).segment(10, launches=50).clock()
    assert play([script.bye()], queue_depth=10).clocks(0) == [1000]


def test_two_streams_share_the_gpu() -> None:
    # Each fills the GPU and runs at 1 / 1.8 of its rate while the other has work: both do 1000 ns of work in 1800. The
    # rate is rounded down to whole units.
    script = one().segment(1000, contended_ns=1500).segment(1000, contended_ns=1500, stream=2)
    assert play([script.sync(stream=1).clock().sync().clock().bye()]).clocks(0) == [1801, 1801]


def test_the_longer_of_two_streams_goes_on_alone() -> None:
    # 500 ns of each are done at 901; the rest of the longer one takes its own time.
    script = one().segment(500, contended_ns=750).segment(2000, contended_ns=3000, stream=2)
    assert play([script.sync(stream=1).clock().sync().clock().bye()]).clocks(0) == [901, 2401]


def test_work_that_leaves_the_gpu_free_shares_nothing() -> None:
    # A copy takes as long beside NCCL as alone: it needs nothing of what kernels need.
    script = one().segment(1000).segment(1000, contended_ns=1500, stream=2)
    assert play([script.sync(stream=1).clock().sync().clock().bye()]).clocks(0) == [1000, 1000]


def test_a_segment_that_waits_for_its_last_launch_leaves_the_gpu_free() -> None:
    # The first has done its 500 ns of work at 901 and waits until 5000; from then on the second runs alone.
    script = one().segment(500, contended_ns=750, tail_ns=5000).segment(2000, contended_ns=3000, stream=2)
    assert play([script.sync(stream=2).clock().sync().clock().bye()]).clocks(0) == [2401, 5000]


def test_shared_streams_beside_nccl() -> None:
    # Beside NCCL from 0 to 900, each at 1 / 1.5 / 1.8 of its rate: a third of the work; the rest takes 1200.
    (script,) = scripts(1)
    script.all_reduce(900, stream=3)
    script.segment(1000, contended_ns=1500).segment(1000, contended_ns=1500, stream=2)
    assert play([script.sync(stream=1).clock().bye()]).clocks(0) == [2101]


def test_a_destroyed_stream_finishes_its_work() -> None:
    script = one().segment(1000, stream=3).add(records.StreamDestroy.encode(0, 3, 0)).sync().clock()
    assert play([script.bye()]).clocks(0) == [1000]


@pytest.mark.parametrize(
    ("record", "message"),
    [
        (records.Segment.encode(0, 9, 1, 1, 1, 1, 0, 0), "stream 9 was never created"),
        (records.StreamCreate.encode(0, 1, 0, 0, 0), "stream 1 created twice"),
        (records.StreamDestroy.encode(0, 7, 0), "stream 7 was never created"),
        (records.StreamWait.encode(0, 1, 0, 5), "recording 5 was never made"),
        (records.HostWait.encode(0, ScopeKind.EVENT, 0, 5), "recording 5 was never made"),
        (records.HostWait.encode(0, 8, 0, 5), "HOST_WAIT with scope 8"),
        (records.RecordingDrop.encode(0, 5), "recording 5 dropped"),
        (records.Elapsed.encode(0, 1, 5, 6), "recording 5 was never made"),
        (records.Query.encode(0, 1, 5, 0, 9, 0, 0, 0), "QUERY with scope 9"),
    ],
)
def test_impossible_records_name_the_rank(record: bytes, message: str) -> None:
    with pytest.raises(ProtocolError, match=f"^rank 0: .*{message}"):
        play([one().add(record)])


def test_the_run_drains_after_the_last_goodbye() -> None:
    result = play([one().segment(1000).bye()])
    assert (result.stop, result.end_ns) == (Stop.DRAINED, 1000)
