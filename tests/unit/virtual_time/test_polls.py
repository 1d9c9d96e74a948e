"""What questions in a row cost: in virtual time and in the engine of replays."""

from __future__ import annotations

import ctypes
from pathlib import Path

import pytest

from phantora_async.replaying.native import library
from phantora_async.virtual_time.polls import poll_ns
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
    """The program asks `count` times about work of a second and then ends: in a run, and in both replays of it."""
    script = Script(0, 1)
    recording = script.segment(1_000 * MS).record()
    for _ in range(count):
        script.query(recording)
    ran, _ = record([script.bye()], tmp_path, fixed(), 64)
    assert ran.hosts[0].clock_ns == takes_ns
    for engine in (False, True):
        again, answers = replayed(load(tmp_path), fixed(), 64, engine=engine)
        assert outcome(again) == outcome(ran)
        assert answers[0].queries.tolist() == [0] * count


def test_both_have_the_same_table() -> None:
    """Whatever the file says, and up to where nobody waits any more."""
    in_c = library().rp_poll_ns
    in_c.restype = ctypes.c_int64
    for count in [*range(1, 30_000), 10**9]:
        assert in_c(ctypes.c_int64(count)) == poll_ns(count), count
