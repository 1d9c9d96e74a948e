"""Attention to a cache costs by the lengths of its sequences, also in the launches of a CUDA graph."""

from __future__ import annotations

import re

import pytest

from .conftest import Run

pytestmark = pytest.mark.torch


def test_a_step_with_a_longer_context_costs_more(run: Run) -> None:
    done = run("attention_lengths.py", n=1, options=("--gpu", "h100", "--host", "none"))
    assert done.exit_code == 0, done.output
    log = done.log(0)
    assert log.rstrip().endswith("PASSED")
    found = re.findall(r"(launched|replayed) (\d+) keys ([\d.]+) us", log)
    assert [(what, keys) for what, keys, _ in found] == [
        (what, keys) for what in ("launched", "replayed") for keys in ("128", "3500", "128")
    ]
    launched, replayed = ([float(us) for what, _, us in found if what == one] for one in ("launched", "replayed"))
    # 3,372 more tokens of 16 sequences, with 8 heads of 128 in two tensors of 2 bytes, at 3,352 GB/s.
    reading = 16 * (3500 - 128) * 8 * 128 * 4 / 3352e3
    for first, longer, again in (launched, replayed):
        assert first == pytest.approx(again, rel=0.01)
        assert 0.9 * reading < longer - first < 1.6 * reading
