"""When loops that wait for a value end the run, and which ranks the message names."""

from __future__ import annotations

from dataclasses import replace

import pytest

from phantora_async.ingest.call_sites import Line
from phantora_async.ingest.uncomputed_reads import UncomputedReads, WaitingLoop
from phantora_async.liveness import loop_watch
from phantora_async.liveness.loop_watch import MORE_TURNS, PATIENCE_S, LoopWatch

LIMIT = 20
LOOP = WaitingLoop(LIMIT, Line("train.py", 5, "main"), Line("train.py", 6, "main"), "float32", "aten::mean", False)


class Clock:
    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(loop_watch, "monotonic", made)
    return made


def verdict(watch: LoopWatch) -> tuple[int, ...]:
    """Returns the ranks that the run's end names; () if it goes on."""
    found = watch.look()
    return found.ranks if found is not None and found.limit == "--loop-turns" else ()


def test_all_ranks_that_go_round_are_named(clock: Clock) -> None:
    """The first rank beyond the limit waits for the second one's collective."""
    reads = UncomputedReads()
    watch = LoopWatch(reads, [0, 1], LIMIT, None)
    reads.loops[0] = LOOP
    assert verdict(watch) == ()
    reads.loops[1] = replace(LOOP, turns=3)
    assert verdict(watch) == (0, 1)


def test_a_loop_of_one_rank_alone(clock: Clock) -> None:
    """It does not wait for others: its turns say so."""
    reads = UncomputedReads()
    watch = LoopWatch(reads, [0, 1], LIMIT, None)
    reads.loops[0] = replace(LOOP, turns=LIMIT + MORE_TURNS - 1)
    assert verdict(watch) == ()
    reads.loops[0] = replace(LOOP, turns=LIMIT + MORE_TURNS)
    assert verdict(watch) == (0,)


def test_the_wait_for_other_ranks_is_bounded(clock: Clock) -> None:
    reads = UncomputedReads()
    watch = LoopWatch(reads, [0, 1], LIMIT, None)
    reads.loops[0] = LOOP
    assert verdict(watch) == ()
    clock.now_s += PATIENCE_S
    assert verdict(watch) == ()
    clock.now_s += 0.1
    assert verdict(watch) == (0,)


def test_a_job_of_one_rank_ends_at_the_limit(clock: Clock) -> None:
    reads = UncomputedReads()
    reads.loops[0] = LOOP
    assert verdict(LoopWatch(reads, [0], LIMIT, None)) == (0,)
