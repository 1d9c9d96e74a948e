"""Descriptions, in words, of what ranks are doing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from emu.contract import records
from phantora_async.diagnosis import rank_states
from phantora_async.errors import Side
from phantora_async.folding import Folding, mesh_of
from phantora_async.ingest.call_sites import Line, Site
from phantora_async.ingest.differing_lines import DifferingCalls
from phantora_async.virtual_time import RankSnapshot, Timeline, Timelines

from ..virtual_time.scripted import FixedNetwork, Script, new_fact_builder

RANKS = 512


def test_ranks_that_share_a_timeline_are_described_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Described one by one, ranks that are in a collective of all took time with the square of their number."""
    timelines = Timelines(RANKS, Folding(mesh_of(f"dp={RANKS}", RANKS), frozenset((0,))), (RANKS,))
    timeline = Timeline(RANKS, FixedNetwork(), 1024, timelines=timelines)
    fact_builder = new_fact_builder(RANKS, timelines)
    for rank in timelines.own:
        script = Script(rank, RANKS).clock(after=rank)
        timeline.feed(rank, fact_builder.take(rank, records.decode_up(b"".join(script.records))[0]))
    timeline.run(100)
    described: list[int] = []
    activity = rank_states._activity

    def noted(rank: RankSnapshot, *others: Any) -> Any:
        described.append(rank.rank)
        return activity(rank, *others)

    monkeypatch.setattr(rank_states, "_activity", noted)
    found = rank_states.states(timeline.snapshot(), fact_builder)
    assert described == list(timelines.own) == [0, 1]
    assert [state.rank for state in found] == list(range(RANKS))
    assert {state.doing for state in found[1:]} == {"waits for the time, which depends on slower ranks"}


def test_lines_of_other_threads_are_told_beside_the_rank_s_own(tmp_path: Path) -> None:
    state = rank_states.RankState(1, 0, "running", waiting=False, steps=0, site=None)
    threads = [Site(Line("train.py", line, "writes")) for line in range(5, 10)]

    def told(beside: list[Site]) -> str:
        seen_at = {1: Site(Line("train.py", 3, "<module>"))}
        return rank_states.describe_all([state], tmp_path, seen_at, {}, {1: beside})

    at = "  rank 1: running, now at train.py:3"
    assert told([]).startswith(f"{at}; log ")
    assert told(threads[:1]).startswith(f"{at}, another thread at train.py:5 in writes; log ")
    lines = ", ".join(f"train.py:{line} in writes" for line in range(5, 9))
    assert told(threads).startswith(f"{at}, other threads at {lines}, ...; log ")


def test_calls_of_different_lines_are_told_with_who_was_where() -> None:
    fact_builder = new_fact_builder(3, Timelines(3))
    for rank, line in enumerate((20, 13, 20)):
        told = records.Site.encode(0, 5, line, 0, 0, payload=b"train.py\nsave\n\n")
        fact_builder.take(rank, records.decode_up(b"".join([*Script(rank, 3).records, told]))[0])
    side = Side("all_reduce #1 of 1 f32 (sum) on communicator of ranks 0-2", (1, 0, 2), (5, 5, 5))
    assert rank_states.describe_differing_lines([DifferingCalls(side, "")], fact_builder).splitlines() == [
        "since all_reduce #1 of 1 f32 (sum) on communicator of ranks 0-2 these ranks have paired calls of different "
        "lines; if the lines do not belong together, a rank has skipped or added a call there:",
        "  ranks 0,2: called at train.py:20 in save",
        "  rank 1: called at train.py:13 in save",
    ]


def test_the_line_that_called_a_helper_is_told_and_calls_that_ended_alike_are_told_until_then() -> None:
    fact_builder = new_fact_builder(2, Timelines(2))
    for rank, line in enumerate((30, 31)):
        told = records.Site.encode(0, 5, 13, 0, line, payload=b"train.py\ngather\n\n\ntrain.py\nstep")
        fact_builder.take(rank, records.decode_up(b"".join([*Script(rank, 2).records, told]))[0])
    calls = DifferingCalls(Side("all_reduce #1", (0, 1), (5, 5)), "all_reduce #7")
    assert rank_states.describe_differing_lines([calls], fact_builder).splitlines() == [
        "from all_reduce #1 to all_reduce #7 these ranks had paired calls of different lines; if the lines do not "
        "belong together, a rank has skipped or added a call there:",
        "  rank 0: called at train.py:13 in gather, from train.py:30",
        "  rank 1: called at train.py:13 in gather, from train.py:31",
    ]
    assert fact_builder.site(0, 5) == fact_builder.site(1, 5)  # reports count them as one line
