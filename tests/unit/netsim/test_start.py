"""How long NCCL takes to make communicators: what is added up, and who waits for whom."""

from __future__ import annotations

import json
import statistics
from pathlib import Path

import pytest

from netsim.collectives import Made, Range, start_of_all
from netsim.collectives.start import communicator_start, start_times

NOW, BEFORE = (2, 28), (2, 27)
ROWS = Path(__file__).parents[3] / "laboratory" / "rows" / "nccl-start-h200-x2.jsonl"


def test_a_later_communicator_of_one_rank_takes_what_each_takes() -> None:
    assert communicator_start(1, 1, False, NOW) == start_times().each


def test_the_first_one_loads_kernels_and_looks_at_the_server() -> None:
    later, first, times = communicator_start(8, 1, False, NOW), communicator_start(8, 1, True, NOW), start_times()
    assert first.low - later.low == pytest.approx(times.kernels.low + times.first.low)
    assert first.high - later.high == pytest.approx(times.kernels.high + times.first.high)


def test_rings_and_pairs_decide_among_thousands() -> None:
    """16,384 ranks: three rings of 8,192 hops of 28 to 68 µs, 128 addresses a root, and 2.7e8 pairs of 3 to 6 ns."""
    takes, times = communicator_start(16_384, 2_048, False, NOW), start_times()
    assert takes.low == pytest.approx(times.each.low + 0.688 + 0.00128 + 0.805, rel=1e-3)
    assert takes.high == pytest.approx(times.each.high + times.across.high + 1.671 + 0.0064 + 1.611, rel=1e-3)
    before = communicator_start(16_384, 2_048, False, BEFORE)
    assert before.low - takes.low == pytest.approx(3 * 28e-6 * (16_383 - 8_192))


def test_a_communicator_begins_when_its_last_member_has_its_earlier_ones() -> None:
    pair, other, both = Made((0, 1), 1), Made((2, 3), 1), Made((0, 1, 2, 3), 1)
    first, later = communicator_start(2, 1, True, NOW), communicator_start(4, 1, False, NOW)
    at_once = start_of_all([pair, other], NOW)
    assert at_once == first, "they do not wait for each other"
    assert start_of_all([pair, other, both], NOW) == first + later
    assert start_of_all([other, pair, both], NOW) == start_of_all([pair, other, both], NOW)
    assert start_of_all([], NOW) == Range(0, 0)


def test_two_h200s_are_in_the_range() -> None:
    """Measured: the first communicator with its first operation, and others with theirs."""
    rows = [json.loads(line) for line in ROWS.read_text().splitlines()]
    times = [dict(row["times"]) for row in rows if row["part"] == "torch"]
    first = statistics.median(one["init_process_group"] + one["first all_reduce"] for one in times)
    later = statistics.median(one["new_group 1"] + one["its first all_reduce 1"] for one in times)
    for took, takes in (
        (first, communicator_start(2, 1, True, NOW)),
        (later, communicator_start(2, 1, False, NOW)),
    ):
        assert takes.low <= took <= takes.high
