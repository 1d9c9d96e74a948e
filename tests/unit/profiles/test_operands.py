"""Kernels that no model knows cost what their operands need, however few blocks they have."""

from __future__ import annotations

import pytest

from profiles import CostModel, Source, load_gpu
from profiles.models.kernels.operands import operands
from profiles.signature import parse

H200 = load_gpu("h200")
MIB = 1 << 20


def priced(buffers: str, grid: str = "132,1,1", name: str = "persistent"):
    return CostModel(H200).cost(f"sized;{name};{grid};128,1,1;0;;;-;{buffers}")


def test_a_persistent_kernel_costs_its_bytes() -> None:
    """One GiB is read and one written at no more than 4.8 TB/s; the same grid over a megabyte costs little."""
    large, small = priced(f"{1024 * MIB},{1024 * MIB}"), priced(f"{MIB},{MIB}")
    assert large.source is Source.UNRECOGNISED
    assert not large.at_least
    assert large.solo_ns >= 2 * 1024 * MIB / 4800
    assert large.solo_ns <= 1.5 * 2 * 1024 * MIB / 4000
    assert small.solo_ns < 10_000


def test_without_operands_the_cost_is_a_lower_bound() -> None:
    assert CostModel(H200).cost("kernel;persistent;132,1,1;128,1,1;0;;").at_least


@pytest.mark.parametrize(
    ("buffers", "expected", "at_least"),
    [
        ("67108864,67108864,8192", 2 * 67108864 + 8192, False),
        ("1073741824,4", 1073741828, False),  # a sum over all of it
        ("4294967296,4294967296,1048576,1048576", 4 * 1048576, True),  # pools of keys and values
        ("~67108864,1048576", 2 * 1048576, True),  # a view of a larger block
        ("~65536,1048576", 65536 + 1048576, False),  # what is left of its block is small
        ("~4096,~8192", 2 * 4096, True),
        ("-", 0, False),
    ],
)
def test_what_a_block_counts(buffers: str, expected: int, at_least: bool) -> None:
    found = operands(parse(f"sized;k;1,1,1;32,1,1;0;;;-;{buffers}"))
    assert (found.total, found.at_least) == (expected, at_least)


def test_a_block_that_is_larger_than_all_tensors_of_its_operator_is_a_view() -> None:
    """Four tokens are written into the cache of the first layer, which begins where the block of all layers does."""
    shapes = "[[4, 8, 128], [4, 8, 128], [8192, 16, 8, 128], [8192, 16, 8, 128], [4]]"
    written = f"sized;write;4,1,1;512,1,1;0;ops::write;{shapes};-"
    found = operands(parse(f"{written};~40960,17179869184,32768,512,512"))
    assert (found.total, found.at_least) == (512 + 512 + 3 * 32768, True)
    own = operands(parse(f"{written};268435456,32768,512,512"))
    assert own.total == 268435456 + 32768 + 2 * 512, "a block that its tensor can fill counts whole"
