"""Where kernels lie within their segment."""

from __future__ import annotations

from phantora_async.trace.placement import Launch, Rate, place
from profiles.gpu_sharing import WORK_UNIT

SOLO_NS, CONTENDED_NS = 60, 90
WORK = SOLO_NS * CONTENDED_NS * WORK_UNIT
ALONE, BESIDE_NCCL = CONTENDED_NS * WORK_UNIT, SOLO_NS * WORK_UNIT
LAUNCHES = (Launch(100, 10), Launch(100, 20), Launch(100, 30))


def test_alone_kernels_take_their_own_time_back_to_back() -> None:
    assert place(LAUNCHES, WORK, [Rate(1000, ALONE)], 1060) == [(1000, 1010), (1010, 1030), (1030, 1060)]


def test_beside_nccl_all_take_longer_in_proportion() -> None:
    assert place(LAUNCHES, WORK, [Rate(1000, BESIDE_NCCL)], 1090) == [(1000, 1015), (1015, 1045), (1045, 1090)]


def test_a_change_of_the_rate_changes_the_kernels_behind_it() -> None:
    rates = [Rate(1000, ALONE), Rate(1010, BESIDE_NCCL)]
    assert place(LAUNCHES, WORK, rates, 1085) == [(1000, 1010), (1010, 1040), (1040, 1085)]


def test_a_kernel_starts_no_earlier_than_its_launch() -> None:
    late = (Launch(1000, 10), Launch(1100, 20), Launch(1100, 30))
    assert place(late, WORK, [Rate(1000, ALONE)], 1150) == [(1000, 1010), (1100, 1120), (1120, 1150)]


def test_kernels_end_with_their_segment_even_if_slowed_down_after_a_late_launch() -> None:
    late = (Launch(1000, 10), Launch(1100, 20), Launch(1100, 30))
    placed = place(late, WORK, [Rate(1000, BESIDE_NCCL)], 1150)
    assert placed == [(1000, 1015), (1075, 1105), (1105, 1150)]


def test_a_segment_without_work_has_kernels_without_duration() -> None:
    assert place((Launch(5, 0),), 0, [Rate(7, 0)], 7) == [(7, 7)]


def test_work_that_stands_still_ends_with_the_segment() -> None:
    assert place((Launch(0, 60),), WORK, [Rate(0, ALONE), Rate(30, 0)], 50) == [(0, 50)]
