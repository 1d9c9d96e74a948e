"""A replay on another machine stops where the program would have been told something else."""

from __future__ import annotations

from pathlib import Path

import pytest

from phantora_async.errors import ExitCode, PathChanged
from phantora_async.recording import load
from phantora_async.replaying.answers import Compared, compare
from phantora_async.replaying.differences import QUERIES, Allowed
from phantora_async.virtual_time import Collective
from tests.unit.virtual_time.scripted import FixedNetwork, Script, world_comm

from .recordings import record, replayed


def program() -> list[Script]:
    """Returns scripts in which both ranks look, 500 ns after it began, whether an all-reduce is complete, then read
    their clocks.
    """
    ranks = [Script(rank, 2, world_comm(2)).join_world() for rank in range(2)]
    for script in ranks:
        recording = script.all_reduce(64).record(stream=2)
        script.advance(500).query(recording).sync().clock().bye()
    return ranks


def lasts(for_ns: int) -> FixedNetwork:
    def duration_ns(collective: Collective) -> int:
        return for_ns

    return FixedNetwork(duration_ns)


def compared(folder: Path, for_ns: int, allowed: Allowed = frozenset()) -> dict[str, Compared]:
    """Compares the answers of a replay in which the all-reduce lasts so long; it was recorded with 100 ns."""
    record(program(), folder, lasts(100), 64)
    recording = load(folder)
    _, answers = replayed(recording, lasts(for_ns), 64)
    return compare(recording, answers, allowed)


def test_equal_answers(tmp_path: Path) -> None:
    found = compared(tmp_path, 100)
    assert found["query"] == (2, 0, 0)
    assert found["clock_read"] == (2, 0, 0)


def test_other_times_are_counted(tmp_path: Path) -> None:
    found = compared(tmp_path, 600, {QUERIES})
    assert found["clock_read"] == (2, 2, 0)
    assert found["query"] == (2, 2, 0)


def test_another_state_stops_the_replay(tmp_path: Path) -> None:
    with pytest.raises(PathChanged, match=r"rank 0 .* recorded: complete, now: not complete") as raised:
        compared(tmp_path, 600)
    assert raised.value.exit_code == ExitCode.CHANGED
