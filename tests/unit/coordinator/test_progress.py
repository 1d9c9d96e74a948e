"""The status line, and the back-pressure behind it."""

from __future__ import annotations

import pytest

from emu.contract import records
from phantora_async.coordinator import backpressure
from phantora_async.coordinator.backpressure import Backpressure
from phantora_async.diagnosis.progress import Progress, examples, line
from phantora_async.virtual_time import Timeline

from ..virtual_time.scripted import FixedFabric, Script, new_intake


def test_the_line_counts_ranks_by_what_they_do() -> None:
    timeline, fact_builder = Timeline(4, FixedFabric(), 1024), new_intake(4)
    played = [Script(0, 4).advance(1_500_000).step(), Script(1, 4).clock(after=2_000_000), Script(2, 4).step().bye()]
    for script in played:
        timeline.feed(script.rank, fact_builder.take(script.rank, records.decode_up(b"".join(script.records))[0]))
    timeline.run(100)
    progress = Progress.of(timeline.snapshot(examples(fact_builder)), fact_builder)
    assert (progress.starting, progress.running, progress.waiting, progress.finished) == (1, 1, 1, 1)
    assert line(progress) == "virtual 0.000 s | 1 starting, 1 running, 1 waiting, 1 finished"


def test_when_all_wait_the_line_says_for_what() -> None:
    timeline, fact_builder = Timeline(2, FixedFabric(), 1024), new_intake(2)
    for rank in range(2):
        script = Script(rank, 2).step().clock(after=7)
        timeline.feed(rank, fact_builder.take(rank, records.decode_up(b"".join(script.records))[0]))
    timeline.run(4)
    text = line(Progress.of(timeline.snapshot(examples(fact_builder)), fact_builder))
    assert text.startswith("virtual 0.000 s | 2 waiting")
    assert text.endswith("rank 0 waits for the time until slower ranks have caught up")


def test_back_pressure_pauses_and_resumes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backpressure, "RANK_FACTS", 10)
    timeline, bounds = Timeline(2, FixedFabric(), 1024), Backpressure(2)
    facts = records.decode_up(records.HostAdvance.encode(1) * 12)[0]

    def feed(rank: int) -> bool:
        timeline.feed(rank, facts)
        return bounds.too_long(timeline, rank, len(facts))

    assert feed(0)
    assert bounds.short_again(timeline) == []
    timeline.feed(1, facts)  # what virtual time was waiting for
    timeline.run(100)
    assert bounds.short_again(timeline) == [0]
    assert bounds.paused == set()


def test_all_together_have_a_bound_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backpressure, "ALL_FACTS", 310)
    timeline, bounds = Timeline(4, FixedFabric(), 1024), Backpressure(4)
    facts = records.decode_up(records.HostAdvance.encode(1) * 120)[0]
    paused = []
    for rank in range(4):
        timeline.feed(rank, facts)
        paused.append(bounds.too_long(timeline, rank, len(facts)))
    assert paused == [False, False, True, True]
    assert bounds.widen() == [2, 3]
    timeline.feed(0, facts)
    assert not bounds.too_long(timeline, 0, len(facts))
