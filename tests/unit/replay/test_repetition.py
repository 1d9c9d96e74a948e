"""Steps that are played from the record are those that a run would have done."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from emu.contract import records
from phantora_async.api.replays import replay
from phantora_async.errors import PathChanged, UsageError
from phantora_async.recording import Recording, load
from phantora_async.replaying.answers import Compared, compare
from phantora_async.replaying.execution import RecordedRun, execute
from phantora_async.replaying.repetition import Repetition, repetition_of
from phantora_async.report.notes import notes
from phantora_async.virtual_time import Collective, Timeline
from tests.unit.virtual_time.scripted import FixedNetwork, Script, world_comm

from .recordings import outcome, record

DEPTH = 64
Step = Callable[[Script, int], Any]


def plain(script: Script, step: int) -> int:
    """Writes a step: work, an all-reduce behind it, a wait for what was recorded in the same step, and a look at the
    clock.
    """
    script.advance(100).segment(300, stream=1)
    computed = script.record(stream=1)
    recording = script.wait(computed, stream=2).all_reduce(64).record(stream=2)
    script.query(recording).advance(50).sync(recording=recording).clock().step(after=7)
    return recording


def ranks(steps: int, step: Step = plain) -> list[Script]:
    """Returns ranks whose first step is longer than the others. Behind the last one the first recording and the last
    are waited for.
    """
    found = [Script(rank, 2, world_comm(2)).join_world() for rank in range(2)]
    for script in found:
        first = script.advance(1000).segment(5000, stream=1).record(stream=1)
        last = [step(script, number) for number in range(1, steps + 1)][-1]
        script.elapsed(first, last).advance(20).sync(recording=last).clock().bye()
    return found


def constant(collective: Collective) -> int:
    return 400


def recorded(folder: Path, steps: int, step: Step = plain) -> tuple[Timeline, Recording]:
    folder.mkdir()
    timeline, _ = record(ranks(steps, step), folder, FixedNetwork(constant), DEPTH)
    return timeline, load(folder)


def played(recording: Recording, repetition: Repetition, network: FixedNetwork) -> tuple[Timeline, Any]:
    streams = [repetition.stream(rank, recording.stream(rank)) for rank in range(2)]
    moved = repetition.moved(recording)
    timeline = Timeline(2, network, DEPTH, recorded=RecordedRun(moved, streams))
    return timeline, execute(moved, timeline)[1]


def test_played_steps_are_those_of_a_longer_run(tmp_path: Path) -> None:
    ran, _ = recorded(tmp_path / "nine", 9)
    _, recording = recorded(tmp_path / "four", 4)
    repetition = repetition_of(recording, 9)
    assert (repetition.step, repetition.count, repetition.asked_otherwise) == (4, 5, ())
    timeline, _ = played(recording, repetition, FixedNetwork(constant))
    assert outcome(timeline) == outcome(ran)
    given = [repetition.recorded(recording, rank, answers, False) for rank, answers in enumerate(_answers(recording))]
    assert [len(one.clocks) for one in given] == [5, 5]
    found = compare(recording, given, frozenset())
    assert found["query"] == Compared(8, 0, 0)
    assert found["elapsed"].other == 2, "the last step's end is later than it was"


def _answers(recording: Recording) -> Any:
    return played(recording, repetition_of(recording, 9), FixedNetwork(constant))[1]


def test_an_earlier_step_is_played_where_the_last_one_differs(tmp_path: Path) -> None:
    def writes_at_the_end(script: Script, step: int) -> int:
        if step == 5:
            script.advance(123_456)
        return plain(script, step)

    _, recording = recorded(tmp_path / "five", 5, writes_at_the_end)
    repetition = repetition_of(recording, 8)
    assert (repetition.step, repetition.count) == (4, 3)
    timeline, _ = played(recording, repetition, FixedNetwork(constant))

    def writes_later(script: Script, step: int) -> int:
        if step == 8:
            script.advance(123_456)
        return plain(script, step)

    ran, _ = recorded(tmp_path / "eight", 8, writes_later)
    assert outcome(timeline) == outcome(ran)


def test_what_may_not_be_played(tmp_path: Path) -> None:
    def grows(script: Script, step: int) -> int:
        return plain(script.advance(step), step)

    _, recording = recorded(tmp_path / "grows", 4, grows)
    with pytest.raises(UsageError, match="rank 0 did not do the same in steps 3 and 4"):
        repetition_of(recording, 9)
    _, recording = recorded(tmp_path / "two", 2)
    with pytest.raises(UsageError, match="it has 2 of at least 3 steps"):
        repetition_of(recording, 9)
    _, recording = recorded(tmp_path / "four", 4)
    with pytest.raises(UsageError, match="has 4 steps, all of which are executed"):
        repetition_of(recording, 4)
    with pytest.raises(UsageError, match="MiB, of at most 2,048"):
        repetition_of(recording, 10**9)


def test_a_played_step_that_is_told_otherwise_ends_the_replay(tmp_path: Path) -> None:
    """From the seventh all-reduce on they take no time: when the host looks, they are complete."""
    begun: list[Collective] = []

    def faster(collective: Collective) -> int:
        if collective not in begun:
            begun.append(collective)
        return 400 if begun.index(collective) < 6 else 0

    def work_first(script: Script, step: int) -> int:
        script.advance(100)
        recording = script.all_reduce(64).record(stream=2)
        script.advance(50).query(recording).sync(recording=recording).step(after=7)
        return recording

    _, recording = recorded(tmp_path / "looks", 4, work_first)
    repetition = repetition_of(recording, 9)
    _, answers = played(recording, repetition, FixedNetwork(faster))
    with pytest.raises(PathChanged, match="step 7 cannot be played from the record of step 4: rank 0 asks at"):
        repetition.recorded(recording, 0, answers[0], False)
    assert len(repetition.recorded(recording, 0, answers[0], True).queries) == 4


def test_the_report_says_which_steps_were_not_run(tmp_path: Path) -> None:
    scripts = [Script(rank, 2, world_comm(2)) for rank in range(2)]
    for rank, script in enumerate(scripts):
        script.add(records.CommInit.encode(0, 1, 2, rank, rank, 0, payload=b"world".ljust(128, b"\0")))
        for _ in range(4):
            script.segment(1000, after=10).all_reduce(1 << 20).sync().step()
        script.bye()
    (tmp_path / "four").mkdir()
    record(scripts, tmp_path / "four", FixedNetwork(), DEPTH)
    run = replay(tmp_path / "four", steps=9, run_dir=tmp_path / "replay")
    simulated = run.report["simulated"]
    assert simulated["played_steps"] == {"step": 4, "count": 5, "inexact_ranks": []}
    assert (simulated["step"]["first_counted"], simulated["step"]["last_counted"]) == (4, 9)
    (told,) = (line for line in notes(run.report) if "not run" in line)
    assert told.startswith("steps 5 to 9 were not run: each is step 4 once more, in virtual time alone")
