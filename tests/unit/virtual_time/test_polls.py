"""Costs of questions in a row."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.replay.recordings import load, outcome, record, replayed

from .programs import fixed
from .scripted import Script

US = 1_000
MS = 1_000_000


@pytest.mark.parametrize(
    ("count", "takes_ns"),
    [
        (64, 0),
        (66, 2 * US),
        (999, 935 * US),
        (2100, 935 * US + 1000 * 100 * US + 101 * 200 * US),
    ],
)
def test_a_row_of_questions(tmp_path: Path, count: int, takes_ns: int) -> None:
    """The program asks `count` times about work of a second and then ends: in a run, and in a replay of it."""
    script = Script(0, 1)
    recording = script.segment(1_000 * MS).record()
    for _ in range(count):
        script.query(recording)
    ran, _ = record([script.bye()], tmp_path, fixed(), 64)
    assert ran.hosts[0].clock_ns == takes_ns
    again, answers = replayed(load(tmp_path), fixed(), 64)
    assert outcome(again) == outcome(ran)
    assert answers[0].queries.tolist() == [0] * count


def asks(folder: Path, work_ns: int, *, after: int, turns: tuple[int, ...]) -> tuple[list[int], int]:
    """A loop's questions about work that was given at once, some turns together: answers, and when the loop ends. The
    same in a run, and in a replay of it.
    """
    script = Script(0, 1)
    recording = script.segment(work_ns).record()
    for count in turns:
        script.query(recording, after=after, turns=count)
    folder.mkdir(exist_ok=True)
    ran, _ = record([script.bye()], folder, fixed(), 64)
    again, answers = replayed(load(folder), fixed(), 64)
    assert outcome(again) == outcome(ran)
    return answers[0].queries.tolist(), ran.hosts[0].clock_ns


def test_a_loop_ends_with_the_first_turn_that_finds_the_work_complete(tmp_path: Path) -> None:
    """Turns of 1.5 us: the work of 10 us is complete at the seventh."""
    assert asks(tmp_path / "a", 10_000, after=1_500, turns=(100,)) == ([1], 10_500)
    assert asks(tmp_path / "b", 10_000, after=1_500, turns=(1, 2, 3, 4)) == ([0, 0, 0, 1], 10_500)
    assert asks(tmp_path / "c", 10_500, after=1_500, turns=(100,)) == ([1], 10_500)


def test_a_turn_takes_a_microsecond_at_least(tmp_path: Path) -> None:
    assert asks(tmp_path / "a", 10_001, after=0, turns=(64,)) == ([1], 11_000)
    assert asks(tmp_path / "b", 10_001, after=300, turns=(1,) * 11) == ([0] * 10 + [1], 11_000)


def test_a_loop_that_gives_up_has_waited_for_its_turns(tmp_path: Path) -> None:
    assert asks(tmp_path, 10_000, after=2_000, turns=(1, 3)) == ([0, 0], 8_000)
