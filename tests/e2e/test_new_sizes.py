"""A size that a process has not had takes its libraries' heuristics and plans."""

from __future__ import annotations

import pytest

import profiles

from .conftest import Run


def test_a_new_length_costs_what_cudnn_takes_to_compile_attention(run: Run) -> None:
    ended = run("new_lengths.py", n=1, options=("--gpu", "h200"))
    rows = [[int(one) for one in line.split()] for line in ended.log(0).splitlines() if line[:1].isdigit()]
    assert [row[0] for row in rows] == [128, 128, 192, 192, 128]
    plan = profiles.load_host("xeon-h200").cost_ns["plan"] / 1e3
    first, again, other, other_again, third = (row[1:] for row in rows)
    for one, of_same in ((first, again), (other, other_again)):
        more = [a - b for a, b in zip(one, of_same, strict=True)]
        assert more == [pytest.approx(plans * plan, rel=0.05) for plans in (26, 35, 1)]
    assert third == pytest.approx(again, rel=0.2)
