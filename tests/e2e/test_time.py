"""Figures of time that a script prints are simulated time, whichever way it measures it."""

from __future__ import annotations

import json
import statistics

import pytest

from .conftest import Run

pytestmark = pytest.mark.torch


@pytest.mark.versions
def test_every_clock_tells_the_reported_step(run: Run) -> None:
    done = run("clocks.py", n=2)
    assert done.exit_code == 0, done.output
    steps_s = json.loads(next(line for line in done.output.splitlines() if line.startswith("{")))
    step = done.simulated["step"]
    assert step["source"].startswith("optimizer markers"), step
    assert len(steps_s) == 12
    for clock, each_s in steps_s.items():
        median_ns = statistics.median(each_s[step["warm_up"] :]) * 1e9
        assert median_ns == pytest.approx(step["median_ns"], rel=0.002), (clock, each_s, step)


def test_an_hour_of_sleep_passes_in_seconds(run: Run) -> None:
    done = run("sleeps.py", n=1)
    assert done.exit_code == 0, done.output
    assert "PASSED" in done.output
    assert done.simulated["virtual_ns"] == pytest.approx(3600e9, rel=1e-6)


def test_timers_agree(run: Run) -> None:
    done = run("timers.py", n=1)
    assert done.exit_code == 0, done.output
    assert "PASSED" in done.output
    seconds = json.loads(next(line for line in done.output.splitlines() if line.startswith("{")))
    for timer, taken in seconds.items():
        assert taken == pytest.approx(seconds["events"], rel=0.005), (timer, seconds)
