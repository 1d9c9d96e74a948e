"""Histories whose critical path is known."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given

from phantora_async.reasons.critical_path import HOST, OUTSIDE, Piece, walk
from phantora_async.reasons.recording import Recorder
from phantora_async.reasons.waits import PEER, STRAGGLER, waits
from phantora_async.virtual_time import UnseenFact

from ..virtual_time.programs import Program, programs, write
from ..virtual_time.scripted import Script, scripts
from .histories import facts_of, path_of, recorded, told


def one() -> Script:
    return Script(0, 1)


def test_a_busy_gpu_is_the_path() -> None:
    script = one().segment(500, after=10).step().segment(1000, after=10).segment(2000, after=10).step()
    assert told(path_of([script.bye()])) == [(0, "segment", 1000, ""), (0, "segment", 2000, "")]


def test_an_idle_gpu_waits_for_the_host() -> None:
    script = one().segment(50).step().segment(100, after=1000).segment(100, after=1000).step(after=400)
    # The GPU is idle from 50 to 1000 and from 1100 to 2000; the step ends with the host, at 2400.
    assert told(path_of([script.bye()])) == [(0, "host", 2350, "")]


def test_a_step_s_end_on_a_busy_gpu_is_the_gpu_s() -> None:
    script = one().segment(50).step().segment(100, after=1000).segment(700, after=100).step(after=10)
    assert told(path_of([script.bye()])) == [(0, "host", 1050, ""), (0, "segment", 700, "")]


def test_kernels_that_are_launched_late_wait_for_the_host() -> None:
    # Two kernels of 100 ns, the second launched 900 ns after the first.
    script = one().segment(50).step().segment(200, tail_ns=1000, tail_work_ns=100, after=60).step().bye()
    assert told(path_of([script])) == [(0, "host", 910, ""), (0, "segment", 100, "")]


def test_the_host_s_wait_leads_to_the_stream() -> None:
    script = one().step().segment(1000, after=5).sync(stream=1).segment(300, after=40).step()
    assert told(path_of([script.bye()])) == [
        (0, "host", 5, ""),
        (0, "segment", 1000, ""),
        (0, "host", 40, ""),
        (0, "segment", 300, ""),
    ]


def test_the_path_follows_events_from_stream_to_stream() -> None:
    script = one().step().segment(1000, stream=1).segment(300, stream=2)
    script.wait(script.record(stream=1), stream=2).segment(200, stream=2)
    # Side by side, both streams lose time; the path is what stream 2 waits for.
    pieces = path_of([script.step().bye()])
    assert [piece.doing.stream for piece in pieces if not isinstance(piece.doing, str)] == [1, 2]  # type: ignore[union-attr]


def test_hidden_communication_is_not_on_the_path() -> None:
    ranks = scripts(2)
    for script in ranks:
        script.step()
        script.all_reduce(400, stream=2)
        script.segment(1000, stream=1).step().bye()
    assert [what for _, what, _, _ in told(path_of(ranks))] == ["segment"]


def test_exposed_communication_is() -> None:
    ranks = scripts(2)
    for script in ranks:
        script.step().segment(1000, stream=1)
        script.wait(script.record(stream=1), stream=2).all_reduce(400, stream=2)
        script.wait(script.record(stream=2), stream=1).segment(100, stream=1).step().bye()
    assert told(path_of(ranks)) == [
        (0, "segment", 1000, ""),
        (0, "communication", 400, ""),
        (0, "segment", 100, ""),
    ] or told(path_of(ranks)) == [
        (1, "segment", 1000, ""),
        (0, "communication", 400, ""),
        (0, "segment", 100, ""),
    ]


def _steps_with_straggler(slow: int, world_size: int = 3) -> list[Script]:
    ranks = scripts(world_size)
    for script in ranks:
        script.step().segment(3000 if script.rank == slow else 1000, stream=1)
        script.wait(script.record(stream=1), stream=2).all_reduce(400, stream=2)
        script.wait(script.record(stream=2), stream=1).segment(100, stream=1).step().bye()
    return ranks


def test_others_wait_for_a_straggler() -> None:
    assert told(path_of(_steps_with_straggler(2))) == [
        (2, "segment", 1000, ""),
        (2, "segment", 2000, STRAGGLER),
        (0, "communication", 400, ""),
        (0, "segment", 100, ""),
    ]


def test_the_measured_rank_may_be_the_straggler() -> None:
    assert told(path_of(_steps_with_straggler(0)))[:2] == [(0, "segment", 1000, ""), (0, "segment", 2000, STRAGGLER)]


def test_a_straggler_s_host() -> None:
    ranks = scripts(3)
    for script in ranks:
        script.step().advance(5000 if script.rank == 1 else 0).all_reduce(400, stream=2).step().bye()
    assert told(path_of(ranks)) == [(1, "host", 5000, STRAGGLER), (0, "communication", 400, "")]


def test_a_rank_that_computes_meanwhile_does_not_wait() -> None:
    ranks = scripts(2)
    for script in ranks:
        script.step().all_reduce(400, stream=2, after=2000 if script.rank else 0)
        script.segment(5000, stream=1)
        script.wait(script.record(stream=2), stream=1).step().bye()
    assert {awaited for *_, awaited in told(path_of(ranks))} == {""}


def test_a_pipeline_s_bubble() -> None:
    first, second = scripts(2)
    first.step().segment(1000, stream=2).send(1, 50, stream=2).receive(1, 60, stream=2).step().bye()
    second.step().receive(0, 50, stream=2).segment(700, stream=2).send(0, 60, stream=2).step().bye()
    assert told(path_of([first, second])) == [
        (0, "segment", 1000, PEER),
        (0, "communication", 50, ""),
        (1, "segment", 700, PEER),
        (0, "communication", 60, ""),
    ] or told(path_of([first, second])) == [
        (0, "segment", 1000, PEER),
        (1, "communication", 50, ""),
        (1, "segment", 700, PEER),
        (0, "communication", 60, ""),
    ]


def test_a_wait_outside_of_cuda_is_told_from_work() -> None:
    waited = UnseenFact.of(500)
    facts = facts_of([one().step().advance(40).step(after=60).bye()])
    facts[0].insert(-2, waited)
    recorder = recorded(facts)
    pieces = walk(recorder, recorder.steps[0, 1], 0, {})
    assert [piece[1:4] for piece in pieces] == [(0, 40, HOST), (40, 540, OUTSIDE), (540, 600, HOST)]


@given(program=programs)
def test_whatever_happens_the_pieces_fill_the_time(program: Program) -> None:
    ranks = write(3, program, 1)
    recorder = recorded(facts_of(ranks))
    for end in recorder.steps.values():
        for from_ns in {0, end.at_ns // 2}:
            pieces = walk(recorder, end, from_ns, waits(recorder, from_ns, end.at_ns))
            assert all(before.end_ns == after.start_ns for before, after in pairwise(pieces))
            assert all(piece.start_ns < piece.end_ns for piece in pieces)
            assert sum(piece.end_ns - piece.start_ns for piece in pieces) == end.at_ns - from_ns
            assert all(_happened(piece, recorder) for piece in pieces)


def _happened(piece: Piece, recorder: Recorder) -> bool:
    """Was the rank's stream doing this then?"""
    spans = [(run.start_ns, run.end_ns) for run in recorder.segments if run.launched is piece.doing]
    for run in recorder.nccl:
        spans += [(moved.begun_ns, moved.done_ns) for moved in run.moved if moved.collective is piece.doing]
    inside = any(start_ns <= piece.start_ns and piece.end_ns <= end_ns for start_ns, end_ns in spans)
    return inside or piece.doing == HOST
