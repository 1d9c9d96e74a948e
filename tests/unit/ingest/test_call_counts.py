"""Collectives and waits of ranks, counted by the line of the program: `calls` of a report."""

from __future__ import annotations

import os
from pathlib import Path

from emu.contract.records import NcclKind, ScopeKind
from phantora_async.ingest.call_counts import MOST_KINDS, CallCounts
from phantora_async.ingest.call_sites import Line, Site
from phantora_async.report.calls import calls_document
from phantora_async.report.kernels import RankCounts, WindowCounts
from phantora_async.virtual_time.facts import Collective, Comm

COMM = Comm(1, (0, 1), (0, 1), {0: 0, 1: 1}, "world[2]")


def all_reduce(count: int, dtype: int = 7) -> Collective:
    return Collective(COMM, 0, NcclKind.ALL_REDUCE, dtype, 0, count, 0, (0, 1))


def test_calls_of_the_steps_that_count_with_their_lines(tmp_path: Path) -> None:
    script = tmp_path / "job.py"
    script.write_text("import torch\n\n    print(loss.item())\n")
    site = Site(Line(str(script), 3, "train"))
    counts = CallCounts()
    for _ in range(5):
        counts.collectives([all_reduce(1 << 20)], None)
        counts.wait(ScopeKind.STREAM, site)
        counts.wait(ScopeKind.STREAM, site)
        counts.step_ended(5)
    between = counts.between_steps(2, 4)
    assert between is not None
    told = calls_document(WindowCounts("steps", [RankCounts(0, between), RankCounts(1, between)]))
    (wait,) = told["waits"]
    assert (wait["calls"], wait["on"], wait["code"]) == (8, "stream", "print(loss.item())"), "2 steps of 2 ranks, twice"
    assert wait["site"].endswith("job.py:3 in train")
    (reduced,) = told["collectives"]
    assert (reduced["calls"], reduced["nbytes"]) == (4, 4 << 20)
    assert reduced["title"] == "all_reduce 4,194,304 bytes f32, 2 ranks"


def test_files_that_are_no_program_are_not_read(tmp_path: Path) -> None:
    """A rank names the file: it may never end, hold a secret, or be no file."""
    secret, endless, pipe = tmp_path / "key.pem", tmp_path / "endless.py", tmp_path / "pipe.py"
    secret.write_text("secret")
    endless.symlink_to("/dev/zero")
    os.mkfifo(pipe)
    counts = CallCounts()
    for file in (str(secret), str(endless), str(pipe), str(tmp_path / "missing.py"), "nul\0.py"):
        counts.wait(ScopeKind.STREAM, Site(Line(file, 1, "train")))
    told = calls_document(WindowCounts("run", [RankCounts(0, counts.total)]))
    assert [wait["code"] for wait in told["waits"]] == [""] * 5


def test_a_program_with_a_new_size_in_each_call_does_not_fill_the_memory() -> None:
    counts = CallCounts()
    for count in range(1, MOST_KINDS + 100):
        counts.collectives([all_reduce(count)], None)
    assert len(counts.total) == MOST_KINDS + 1
    told = calls_document(WindowCounts("run", [RankCounts(0, counts.total)]))
    assert sum(one.launches for one in counts.total.values()) == MOST_KINDS + 99
    assert told["left_out"] == MOST_KINDS + 1 - len(told["collectives"])
