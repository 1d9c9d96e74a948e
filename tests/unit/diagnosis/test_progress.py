"""The status line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from emu.contract import records
from phantora_async.diagnosis.progress import Progress, clock, examples, line, phase
from phantora_async.liveness.compiling import compiling_ranks
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


def test_a_rank_that_ends_while_its_watchdog_waits_for_an_answer_is_counted_once() -> None:
    fact_builder = new_fact_builder(2)
    fact_builder.take(0, records.decode_up(b"".join(Script(0, 2).clock().bye().records))[0])
    progress = Progress.of(Timeline(2, FixedNetwork(), 1024).snapshot([]), fact_builder)
    assert (progress.starting, progress.running, progress.waiting, progress.finished) == (1, 0, 0, 1)


def test_when_all_wait_the_line_says_for_what() -> None:
    timeline, fact_builder = Timeline(2, FixedNetwork(), 1024), new_fact_builder(2)
    for rank in range(2):
        script = Script(rank, 2).step().clock(after=7)
        timeline.feed(rank, fact_builder.take(rank, records.decode_up(b"".join(script.records))[0]))
    timeline.run(4)
    text = line(Progress.of(timeline.snapshot(examples(fact_builder)), fact_builder))
    assert text.startswith("virtual 0.000 s | 2 waiting")
    assert text.endswith("rank 0 waits for the time, which depends on slower ranks")


def at(starting: int = 0, running: int = 0, finished: int = 0, steps: int = 0) -> Progress:
    return Progress(0, 0, running, 0, finished, starting, steps, None)


def whole(done: int, remaining_s: float | None = None, source: str = "--steps") -> dict[str, Any]:
    return {"done": done, "whole": 10, "share": done / 10, "remaining_s": remaining_s, "source": source}


@pytest.mark.parametrize(
    ("progress", "compiling", "known", "expected"),
    [
        (at(starting=8), [], None, "importing PyTorch and what the script imports"),
        (at(starting=5, running=3), [], None, "starting ranks (3 of 8)"),
        (at(running=8), [], whole(0), "building, before the first step"),
        (at(running=8), [0], None, "building, before the first step, compiling on rank 0"),
        (at(running=8, steps=4), [2, 3], whole(4, 9.0), "step 5 of 10, compiling on ranks 2-3"),
        (at(running=8, steps=4), [], None, "step 5"),
        (at(running=8, steps=4), [], whole(4, 125.0), "step 5 of 10, about 2:05 left"),
        (at(running=8, steps=10), [], whole(10, 0.0), "step 10 of 10, about 0 s left"),
        (at(running=8, steps=4), [], whole(3, 12.0, "--until"), "step 5, 30% of --until, about 12 s left"),
        (at(finished=8, steps=10), [], None, "ending"),
    ],
)
def test_the_phase_of_a_run(
    progress: Progress, compiling: list[int], known: dict[str, Any] | None, expected: str
) -> None:
    assert phase(progress, compiling, known) == expected


def test_real_time_is_told_as_a_clock_does() -> None:
    assert [clock(for_s) for for_s in (0.4, 59.4, 60, 3725)] == ["0 s", "59 s", "1:00", "1:02:05"]


def test_ranks_that_hold_a_lock_in_the_folder_compile(tmp_path: Path) -> None:
    """The file is as the kernel lists locks: one that waits stands behind an arrow, one of another process is none of
    ours.
    """
    (tmp_path / "graph").touch()
    (tmp_path / "other").touch()
    graph, other = ((tmp_path / name).stat().st_ino for name in ("graph", "other"))
    held = tmp_path / "held"
    held.write_text(
        f"1: FLOCK  ADVISORY  WRITE 101 08:01:{graph} 0 EOF\n"
        f"1: -> FLOCK  ADVISORY  WRITE 100 08:01:{graph} 0 EOF\n"
        f"2: FLOCK  ADVISORY  WRITE 55 08:01:{other} 0 EOF\n"
        f"3: POSIX  ADVISORY  WRITE 100 08:01:{other} 0 EOF\n"
        "4: FLOCK  ADVISORY  WRITE 100 08:01:1 0 EOF\n"
    )
    pids = {0: 100, 1: 101}
    assert compiling_ranks(tmp_path, None, pids, held) == [1]
    assert compiling_ranks(tmp_path / "none", None, pids, held) == []
    assert compiling_ranks(None, None, pids, held) == []


def test_a_rank_that_compiles_a_kernel_is_named(tmp_path: Path) -> None:
    cache, proc, held = tmp_path / "triton", tmp_path / "proc", tmp_path / "held"
    held.write_text("1: FLOCK  ADVISORY  WRITE 100 08:01:7 0 EOF\n2: FLOCK  ADVISORY  WRITE 101 08:01:8 0 EOF\n")
    for pid, path in ((100, cache / "KEY" / "lock"), (101, tmp_path / "own" / "lock"), (102, cache / "KEY" / "lock")):
        (proc / str(pid) / "fd").mkdir(parents=True)
        (proc / str(pid) / "fd" / "5").symlink_to(path)
    assert compiling_ranks(None, cache, {0: 100, 1: 101, 2: 102}, held, proc) == [0]
    assert compiling_ranks(None, None, {0: 100, 1: 101, 2: 102}, held, proc) == []
