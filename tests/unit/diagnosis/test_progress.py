"""The status line."""

from __future__ import annotations

from emu.contract import records
from phantora_async.diagnosis.progress import Progress, examples, line
from phantora_async.virtual_time import Timeline

from ..virtual_time.scripted import FixedNetwork, Script, new_fact_builder


def test_the_line_counts_ranks_by_what_they_do() -> None:
    timeline, fact_builder = Timeline(4, FixedNetwork(), 1024), new_fact_builder(4)
    played = [Script(0, 4).advance(1_500_000).step(), Script(1, 4).clock(after=2_000_000), Script(2, 4).step().bye()]
    for script in played:
        timeline.feed(script.rank, fact_builder.take(script.rank, records.decode_up(b"".join(script.records))[0]))
    timeline.run(100)
    progress = Progress.of(timeline.snapshot(examples(fact_builder)), fact_builder)
    assert (progress.starting, progress.running, progress.waiting, progress.finished) == (1, 1, 1, 1)
    assert line(progress) == "virtual 0.000 s | 1 starting, 1 running, 1 waiting, 1 finished"


def test_when_all_wait_the_line_says_for_what() -> None:
    timeline, fact_builder = Timeline(2, FixedNetwork(), 1024), new_fact_builder(2)
    for rank in range(2):
        script = Script(rank, 2).step().clock(after=7)
        timeline.feed(rank, fact_builder.take(rank, records.decode_up(b"".join(script.records))[0]))
    timeline.run(4)
    text = line(Progress.of(timeline.snapshot(examples(fact_builder)), fact_builder))
    assert text.startswith("virtual 0.000 s | 2 waiting")
    assert text.endswith("rank 0 waits for the time, which depends on slower ranks")
