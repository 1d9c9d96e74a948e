"""Grouped products are priced by the sizes of their groups."""

from __future__ import annotations

import gzip
import json
import random
from dataclasses import replace
from math import log
from pathlib import Path

import pytest

import profiles
from emu.control.routing.groups import group_sizes, rounded
from profiles.signature import Grouped, Kernel, format_signature

MODEL = profiles.CostModel(profiles.load_gpu("h200"))
WIDE_TILES = (
    "_ZN7cutlass13device_kernelINS_4gemm5tupleIJNS_1CILi128EEENS2_ILi256EEENS2_ILi64EEEEEENS_10bfloat16_tEEEvT_"
)


def grouped(rows: list[int], x: tuple[int, ...], w: tuple[int, ...]) -> Grouped:
    sizes = [len(rows), *map(rounded, group_sizes(rows))]
    return Grouped(WIDE_TILES, (132, 1, 1), (384, 1, 1), 0, *sizes, "aten::_grouped_mm", (x, w, (), (len(rows),)))


def us(what: Grouped | Kernel) -> float:
    return MODEL.cost(format_signature(what)).solo_ns / 1000


def forward_us(rows: list[int], k: int, n: int) -> float:
    return us(grouped(rows, (sum(rows), k), (len(rows), k, n)))


def spread(groups: int, rows: int, exponent: float) -> list[int]:
    """Rows of groups whose sizes follow a power law, each a multiple of 8."""
    shares = [(n + 1) ** -exponent for n in range(groups)]
    random.Random(groups).shuffle(shares)
    found = [int(rows * share / sum(shares)) // 8 * 8 for share in shares]
    found[found.index(max(found))] += rows - sum(found)
    return found


@pytest.mark.parametrize(
    ("groups", "k", "n", "rows", "measured_us"),
    [
        (8, 4096, 1792, 8192, {0: 179.4, 0.8: 179.5, 1.2: 178.4, 2: 180.6}),
        (64, 2048, 768, 1024, {0: 67.7, 0.8: 45.9, 1.2: 33.9}),
        (64, 2048, 768, 32768, {0: 153.7, 0.8: 174.7, 1.2: 194.3, 2: 193.7}),
        (128, 2048, 1536, 1024, {0: 245.3, 0.8: 70.5, 1.2: 56.0, 2: 35.5}),
        (128, 2048, 1536, 32768, {0: 314.6, 0.8: 424.0, 1.2: 467.2, 2: 382.4}),
    ],
)
def test_as_measured(groups: int, k: int, n: int, rows: int, measured_us: dict[float, float]) -> None:
    """On an H200 with torch 2.11 (bf16, median of 20 in a row), by the exponent of the groups' sizes."""
    for exponent, expected_us in measured_us.items():
        assert forward_us(spread(groups, rows, exponent), k, n) == pytest.approx(expected_us, rel=0.3)


def test_each_group_has_its_own_tiles() -> None:
    """Eight groups of 129 rows have two tiles of 128 rows each, as many as eight groups of 256."""
    assert group_sizes([129] * 8) == [8, 8 * 129, 129, 24, 16]
    short, long, longer = ([rows] * 64 for rows in (1024, 1025, 1152))
    assert forward_us(long, 4096, 1024) == pytest.approx(forward_us(longer, 4096, 1024), rel=0.02)
    assert forward_us(long, 4096, 1024) > 1.08 * forward_us(short, 4096, 1024)


def test_empty_groups_read_no_weights() -> None:
    few, all_of_them = [0] * 120 + [64] * 8, [4] * 128
    assert forward_us(few, 2048, 1536) < 0.4 * forward_us(all_of_them, 2048, 1536)


def test_the_longest_group_bounds_weight_gradients() -> None:
    """A tile of a group's weight gradient adds up all rows of the group."""

    def gradient_us(rows: list[int]) -> float:
        return us(grouped(rows, (1024, sum(rows)), (sum(rows), 1024)))

    assert gradient_us([21504, 1600, *[1611] * 6]) > 1.5 * gradient_us([4096] * 8)


def test_unknown_groups_are_taken_to_be_equal() -> None:
    known = grouped([512] * 8, (4096, 1024), (8, 1024, 512))
    unknown = Kernel(known.name, known.grid, known.block, 0, known.op, known.sizes)
    assert us(unknown) == us(known)


def test_the_kernel_that_prepares_a_product_is_no_product() -> None:
    prepare = replace(
        grouped([512] * 8, (4096, 1024), (8, 1024, 512)), name="prepare_grouped_gemm_data", grid=(1, 1, 1)
    )
    assert us(prepare) < 5


def test_sizes_are_rounded() -> None:
    assert [rounded(n) for n in (0, 1, 31, 32, 33, 100, 1000, 4097)] == [0, 1, 31, 32, 34, 100, 992, 4096]
    assert all(abs(rounded(n) - n) <= n / 32 for n in range(1, 5000))
    assert len({rounded(n) for n in range(1 << 16)}) < 250


def test_products_of_equal_groups_of_many_sizes_cost_what_was_measured() -> None:
    """15 % off when a launch was thought to begin in 12 us (laboratory/rows/sized-h100.jsonl.gz)."""
    errors = []
    with gzip.open(Path(__file__).parents[3] / "laboratory/rows/sized-h100.jsonl.gz", "rt") as lines:
        for line in lines:
            found = json.loads(line)
            if found.get("family") == "grouped" and found.get("written", 0) > 5:
                cost = profiles.CostModel(profiles.load_gpu("h100")).cost(found["signature"])
                errors.append(abs(log(cost.solo_ns / 1e3 / found["written"])))
    assert len(errors) == 69
    assert sum(errors) / len(errors) < 0.05
