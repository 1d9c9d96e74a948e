"""Paces: work between instants, and when work is done."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from phantora_async.faults.pace import FULL_PACE, NEVER, Pace, Parts, slowed

HALF = FULL_PACE // 2


@pytest.mark.parametrize(
    ("from_ns", "for_ns", "end_ns"),
    [
        (0, 400, 400),  # before the change
        (0, 1000, 1600),  # 400 at full pace, 600 at half of it
        (500, 100, 700),
        (400, 1, 402),
        (0, 1400, 2400),
        (0, 0, 0),
    ],
)
def test_work_takes_longer_at_half_the_pace(from_ns: int, for_ns: int, end_ns: int) -> None:
    assert Pace([(400, HALF)]).lasts(from_ns, for_ns) == end_ns


def test_a_pace_of_nothing_stands_still_and_goes_on() -> None:
    pace = Pace([(100, 0), (350, FULL_PACE)])
    assert [pace.lasts(0, for_ns) for for_ns in (100, 101, 200)] == [100, 351, 450]
    assert pace.done(50, 400) == 100 * FULL_PACE


def test_what_never_goes_on_never_ends() -> None:
    pace = Pace([(100, 0)])
    assert (pace.lasts(0, 100), pace.lasts(0, 101), pace.lasts(200, 1)) == (100, NEVER, NEVER)


def test_an_end_is_the_first_whole_nanosecond_that_is_not_before() -> None:
    assert Pace([(0, 700_000)]).lasts(0, 600) == 858  # 857.14


def test_overlapping_shares_are_multiplied() -> None:
    pace = slowed([(100, 300, HALF), (200, NEVER, HALF)])
    assert [pace.at(at_ns) for at_ns in (99, 100, 200, 299, 300)] == [FULL_PACE, HALF, HALF // 2, HALF // 2, HALF]


def test_an_endless_pace_is_the_same_however_it_is_asked() -> None:
    def pace() -> Pace:
        return slowed([(700, 1500, HALF)], Parts(1000, lambda number: FULL_PACE + (number % 3 - 1) * 1000))

    late = pace()
    assert late.at(5_000_000) == FULL_PACE + 1000
    early = pace()
    assert [early.at(at_ns) for at_ns in (0, 700, 1000, 1500, 2000)] == [
        999_000,
        499_500,
        500_000,
        1_000_000,
        1_001_000,
    ]
    assert early.done(0, 5_000_000) == late.done(0, 5_000_000)
    assert early.lasts(0, 4_000_000) == late.lasts(0, 4_000_000)


@given(
    changes=st.dictionaries(st.integers(0, 5000), st.integers(0, FULL_PACE), max_size=6),
    from_ns=st.integers(0, 6000),
    work=st.integers(1, 3000 * FULL_PACE),
)
def test_an_end_fits_the_work_done_until_it(changes: dict[int, int], from_ns: int, work: int) -> None:
    pace = Pace(sorted(changes.items()))
    end_ns = pace.end(from_ns, work)
    if end_ns == NEVER:
        assert pace.done(from_ns, 1 << 50) < work
    else:
        assert pace.done(from_ns, end_ns - 1) < work <= pace.done(from_ns, end_ns)
