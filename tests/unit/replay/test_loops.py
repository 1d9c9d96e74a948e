"""A loop that asks whether work is complete ends, in a replay on another machine, when it would have ended there."""

from __future__ import annotations

from pathlib import Path

import pytest

from emu.contract.records import LoopKind
from phantora_async.recording import Recording, load
from phantora_async.replaying.answers import compare
from phantora_async.replaying.loops import in_loops, marked
from phantora_async.virtual_time import Collective
from tests.unit.virtual_time.scripted import FixedNetwork, Script, world_comm

from .recordings import record, replayed


def lasts(for_ns: int) -> FixedNetwork:
    def duration_ns(collective: Collective) -> int:
        return for_ns

    return FixedNetwork(duration_ns)


def record_loop(folder: Path, for_ns: int, singles: int, *together: int, after: int) -> Recording:
    """Both ranks call an all-reduce, and rank 0 asks in a loop whether it is complete: `singles` times one by one, then
    many turns `together`.
    """
    ranks = [Script(rank, 2, world_comm(2)).join_world() for rank in range(2)]
    recordings = [script.all_reduce(64).record(stream=2) for script in ranks]
    for _ in range(singles):
        ranks[0].query(recordings[0], after=after)
    for turns in together:
        ranks[0].query(recordings[0], after=after, turns=turns)
    record([script.bye() for script in ranks], folder, lasts(for_ns), 64)
    return load(folder)


def ends_at(recording: Recording, for_ns: int) -> int:
    """Returns when rank 0 ends where the all-reduce takes so long. No answer of the loop's counts as another one."""
    timeline, answers = replayed(recording, lasts(for_ns), 64)
    assert compare(recording, answers, frozenset())["query"].other == 0
    assert len(answers[0].queries) == len(recording.answers(0).queries)
    return timeline.snapshot().ranks[0].clock_ns


@pytest.mark.parametrize(
    ("for_ns", "end_ns"),
    [
        (200, 300),
        (1_000, 1_200),
        (2_400, 2_400),
        (2_401, 3_400),
        (5_000, 5_400),
        (5_400, 5_400),
        (30_000, 30_400),
        (10**9, 10**9 + 400),
    ],
)
@pytest.mark.parametrize("recorded_ns", [1_000, 2_400, 5_000, 29_000])
def test_where_a_loop_ends(tmp_path: Path, recorded_ns: int, for_ns: int, end_ns: int) -> None:
    """Turns of 300 ns: the first eight at 300, 600, ... 2,400 ns, then one each microsecond, wherever recorded."""
    singles = min(-(-recorded_ns // 300), LoopKind.FREE)
    together = {1_000: (), 2_400: (), 5_000: (8,), 29_000: (8, 8, 12)}[recorded_ns]
    recording = record_loop(tmp_path, recorded_ns, singles, *together, after=300)
    assert recording.answers(0).queries.tolist() == [0] * (singles + len(together) - 1) + [1]
    assert ends_at(recording, for_ns) == end_ns


def test_a_loop_of_pytorchs_own_code_costs_the_host_nothing(tmp_path: Path) -> None:
    recording = record_loop(tmp_path, 5_500, 8, 8, after=0)
    assert [ends_at(recording, for_ns) for for_ns in (1, 5_500, 100_001)] == [1_000, 6_000, 101_000]


def test_a_loop_that_gave_up_is_a_decision(tmp_path: Path) -> None:
    recording = record_loop(tmp_path, 5_000, 4, after=300)
    assert not in_loops(recording.stream(0).rows, recording.answers(0).queries).any()
    assert marked(recording.stream(0), recording.answers(0).queries) is recording.stream(0)


def test_one_question_is_no_loop(tmp_path: Path) -> None:
    recording = record_loop(tmp_path, 200, 1, after=300)
    _, answers = replayed(recording, lasts(500), 64)
    assert recording.answers(0).queries.tolist() == [1]
    assert answers[0].queries.tolist() == [0]
