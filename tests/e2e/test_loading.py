"""Loading data takes virtual time if it is asked to, and the report says when it would bind."""

from __future__ import annotations

from importlib.util import find_spec
from itertools import pairwise

import pytest

from .conftest import Finished, Run

pytestmark = pytest.mark.torch


def times(done: Finished) -> dict[str, list[float]]:
    """Returns when the batches of each loader were there, in its last epoch."""
    lines = (line.split() for line in done.log(0).splitlines() if not line.startswith("/"))
    return {words[0]: [float(word) for word in words[1:]] for words in lines if len(words) == 13}


def test_stated_loading_takes_what_workers_take_who_load_ahead(run: Run) -> None:
    done = run("loading.py", "0", "0", n=1, options=("--loaders", "20ms"))
    assert done.exit_code == 0, done.output
    found = times(done)
    for name in ("mapped", "streamed"):  # two workers: two batches every 20 ms
        assert found[name][2::2] == pytest.approx([20 * pair for pair in range(1, 6)], abs=0.3), name
        assert found[name][1::2] == pytest.approx([20 * pair for pair in range(6)], abs=1), name
    ahead = found["ahead"]  # four are loaded, and four asked for, when the program sleeps for a second
    slept = ahead[3] + 1000
    assert ahead[:4] == pytest.approx([0, 20, 40, 60], abs=0.3)
    assert ahead[4:8] == pytest.approx([slept] * 4, abs=4)
    assert ahead[8:] == pytest.approx([ahead[4] + 20 * number for number in (1, 2, 3, 4)], abs=0.3)
    for name in ("alone", "stateful") if find_spec("torchdata") else ("alone",):
        assert [after - before for before, after in pairwise(found[name])] == pytest.approx([20.5] * 11, abs=0.5), name
    assert "loading binds (--loaders 20ms): ranks waited for" in done.output


def test_modelled_loading_takes_the_workers_cpu_time_and_their_sleeps(run: Run) -> None:
    done = run("loading.py", "0.01", "0.02", n=1, options=("--loaders", "modelled"))
    assert done.exit_code == 0, done.output
    found = times(done)
    assert found["mapped"][-1] >= 5 * 30  # two batches every 30 ms
    assert found["alone"][-1] >= 11 * 30
    assert min(after - before for before, after in pairwise(found["alone"])) >= 29.9
    assert "is not reproducible; --loaders TIME states it" in done.output
    told = done.report["loading"]
    assert told["cpu_ns"] >= 10_000_000
    assert 20_000_000 <= told["slept_ns"] < 21_000_000


def test_loading_is_free_and_said_to_bind(run: Run) -> None:
    done = run("loading.py", "0.01", "0", n=1)
    assert done.exit_code == 0, done.output
    assert times(done)["mapped"][-1] < 30
    assert "loading binds: 2 workers a rank load a batch every" in done.output
    assert done.report["loading"]["cpu_ns"] >= 10_000_000
