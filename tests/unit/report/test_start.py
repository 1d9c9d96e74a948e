"""The report's part on the time that NCCL takes to make communicators."""

from __future__ import annotations

from phantora_async.report.start import start_document, start_notes
from phantora_async.virtual_time.facts import Comm

VERSION = (2, 30)


def comm(number: int, *members: int) -> Comm:
    return Comm(number, members, members, {rank: at for at, rank in enumerate(members)}, f"{members}")


def test_all_communicators_of_several_ranks_count() -> None:
    comms = [comm(1, 0, 1, 2, 3), comm(2, 0, 1), comm(3, 2, 3), comm(4, 0), comm(5, 0, 2)]
    found = start_document(comms, (2, 2), VERSION)
    assert found is not None
    assert (found["communicators"], found["ranks"]) == (3, 4), "rank 0 is in three, and in one alone"
    shorter = start_document(comms[:3], (2, 2), VERSION)
    assert shorter is not None
    assert 0 < shorter["low_ns"] < found["low_ns"] < found["high_ns"]


def test_a_run_without_communicators_has_no_start() -> None:
    assert start_document([comm(1, 0)], (1,), VERSION) is None
    assert start_notes(None) == []


def test_a_short_start_is_not_told() -> None:
    start = {"communicators": 2, "ranks": 8, "low_ns": 10**8, "high_ns": 3 * 10**9}
    assert start_notes(start) == []
    (note,) = start_notes(start | {"ranks": 16_384, "low_ns": 2 * 10**9, "high_ns": 9 * 10**9})
    assert "takes 2 to 9 s to make 2 communicators of a rank, the largest of 16,384 ranks" in note
