"""Steps that are kept of a run: the step that is executed again is the run's own, to the nanosecond."""

from __future__ import annotations

from typing import Any

import pytest

from emu.contract import records
from phantora_async.reasons.last_steps import KEPT_STEPS, LastSteps
from phantora_async.reasons.replay import play, step_instants
from phantora_async.reasons.window import NoStepError, Window, window
from phantora_async.virtual_time import OutsideWait, Stop, Timeline

from ..virtual_time.scripted import FixedNetwork, Script, scripts
from .histories import facts_of, nbytes

DEPTH = 16


def training(steps: int, world_size: int = 3) -> list[Script]:
    """Returns steps that differ, with a slow rank, events older than a step, and a stream that comes late."""
    ranks = scripts(world_size)
    for script in ranks:
        old = script.record(stream=3)
        for step in range(steps):
            if step == 1:
                script.add(records.StreamCreate.encode(5, 7, 0, 0, 0))
            for layer in range(4):
                script.segment(300 + 40 * (script.rank == 1) + step, stream=1, contended_ns=400, after=70)
                script.wait(script.record(stream=1, after=3), stream=2)
                script.all_reduce(100 + layer, stream=2, after=4)
            script.wait(script.record(stream=2), stream=1)
            script.wait(old, stream=1)
            script.segment(90 + step, stream=7 if step > 1 else 1).segment(80, stream=1)
            if step % 3 == 2:
                script.sync(stream=1, after=9)
            script.step(after=11)
        script.bye()
    return ranks


def kept_of(facts: list[list[Any]], portion: int = 7) -> tuple[LastSteps, Timeline]:
    """Feeds the facts as a run feeds them; returns what is kept."""
    timeline = Timeline(len(facts), FixedNetwork(nbytes), DEPTH)
    kept = LastSteps(len(facts), timeline.results.steps_done)
    left = [list(mine) for mine in facts]
    while any(left):
        for rank, mine in enumerate(left):
            timeline.feed(rank, mine[:portion])
            kept.add(rank, mine[:portion])
            del mine[:portion]
            timeline.run(50)
    while timeline.run(1000) is Stop.BUDGET:
        continue
    return kept, timeline


def window_of(kept: LastSteps, timeline: Timeline) -> Window:
    return window(kept, [timeline.results.recent_steps(rank) for rank in range(len(timeline.hosts))])


@pytest.mark.parametrize("steps", [2, 3, 4, 5, 12])
def test_a_step_executed_again_takes_as_long(steps: int) -> None:
    kept, timeline = kept_of(facts_of(training(steps)))
    chosen = window_of(kept, timeline)
    begin_ns, end_ns = step_instants(chosen, play(chosen, chosen.facts, FixedNetwork(nbytes), DEPTH))
    instants = [end.device_ns for end in timeline.results.step_instants]
    assert end_ns - begin_ns == chosen.step_ns == instants[chosen.step - 1] - instants[chosen.step - 2]
    assert chosen.step == (steps - 1 if steps > 4 else steps)


def test_only_the_last_steps_are_kept() -> None:
    kept, _ = kept_of(facts_of(training(40)))
    assert all(len(rank.steps) <= KEPT_STEPS + 1 for rank in kept.ranks)
    assert all(rank.first + len(rank.steps) == 40 for rank in kept.ranks)


@pytest.mark.parametrize("steps", [0, 1])
def test_without_two_ends_of_steps_there_is_no_reason(steps: int) -> None:
    kept, timeline = kept_of(facts_of(training(steps)))
    with pytest.raises(NoStepError, match="optimizer step"):
        window_of(kept, timeline)


def test_after_a_restart_there_is_no_reason() -> None:
    kept, timeline = kept_of(facts_of(training(5)))
    kept.restart()
    with pytest.raises(NoStepError, match="started again"):
        window_of(kept, timeline)


def test_too_many_records_are_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("phantora_async.reasons.last_steps.MOST_FACTS", 100)
    kept, timeline = kept_of(facts_of(training(5)))
    assert not kept.ranks
    with pytest.raises(NoStepError, match="more than 100 records"):
        window_of(kept, timeline)


def test_a_collective_that_lies_half_outside_is_left_out() -> None:
    facts = facts_of(training(6))
    kept, timeline = kept_of(facts)
    step = kept.ranks[1].steps[-3]
    step.remove(next(fact for fact in step if fact.kind == records.NCCL_LAUNCH))
    chosen = window_of(kept, timeline)
    play(chosen, chosen.facts, FixedNetwork(nbytes), DEPTH)  # nobody waits for ever


def test_a_wait_outside_of_cuda_is_executed_again() -> None:
    kept = LastSteps(1, lambda rank: 0)
    facts = facts_of([Script(0, 1).segment(10).segment(20).segment(30)])[0]
    kept.add(0, facts)
    kept.waited(OutsideWait(0, len(facts) - 1, 500))
    kept.waited(OutsideWait(0, len(facts), 0))
    assert [fact.host_ns for fact in kept.ranks[0].after[-3:]] == [0, 500, 0]
