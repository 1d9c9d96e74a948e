"""Gradients of weights that no kernel splits, as measured on an H100
(laboratory/rows/more-convolutions-h100.jsonl.gz)."""

from __future__ import annotations

import pytest

from profiles.descriptions.gpu import load_gpu
from profiles.models.dispatch import estimate
from profiles.models.products.long_sums import has_no_tiles, is_unsplit
from profiles.signature import Conv

H100 = load_gpu("h100")


def gradient(x: tuple[int, ...], w: tuple[int, ...], stride: int = 1, dtype: str = "f32") -> Conv:
    sides = tuple((side - 1) // stride + 1 for side in x[2:])
    padding = tuple(taps // 2 for taps in w[2:])
    ones = (1,) * len(sides)
    return Conv("wgrad", x, w, (x[0], w[0], *sides), padding, (stride,) * len(sides), ones, 1, dtype, "nchw", "", ())


@pytest.mark.parametrize(
    ("what", "us"),
    [
        (gradient((8, 16, 64, 64, 64), (14, 16, 3, 3, 3)), 55_619),  # 14 blocks for two million pixels
        (gradient((16, 64, 32, 32, 32), (64, 64, 3, 3, 3)), 14_568),
        (gradient((4, 64, 8, 96, 96), (64, 64, 1, 1, 1)), 9_496),
        (gradient((64, 1024, 14, 14), (1024, 1024, 1, 1)), 882),
        (gradient((48, 2048, 7, 7), (2048, 2048, 1, 1)), 609),
        (gradient((32, 320, 64, 64), (320, 320, 3, 3), 2), 2_296),
        (gradient((4, 64, 8, 96, 96), (4, 64, 3, 3, 3), dtype="bf16"), 8_040),  # without tiles
        (gradient((2, 3, 112, 112, 112), (48, 3, 3, 3, 3)), 50_025),
    ],
)
def test_blocks_go_through_all_pixels(what: Conv, us: float) -> None:
    assert estimate(H100, what).solo_ns / 1e3 == pytest.approx(us, rel=0.18)


@pytest.mark.parametrize(
    ("what", "unsplit", "without_tiles"),
    [
        (gradient((4, 64, 8, 96, 96), (4, 64, 3, 3, 3), dtype="bf16"), False, True),
        (gradient((4, 64, 8, 96, 96), (64, 64, 3, 3, 3), dtype="bf16"), False, False),
        (gradient((8, 8, 28, 28, 28), (8, 8, 3, 3, 3)), True, True),
        (gradient((8, 8, 28, 28, 28), (8, 8, 3, 3, 3), 2), True, False),
        (gradient((64, 64, 56, 56), (64, 64, 3, 3)), False, False),  # Winograd's transform
        (gradient((64, 256, 56, 56), (64, 256, 1, 1)), False, False),  # many pixels
        (gradient((64, 1024, 14, 14), (512, 1024, 1, 1)), True, False),
        (gradient((64, 1024, 14, 14), (512, 1024, 1, 1), dtype="tf32"), False, False),
    ],
)
def test_which_are_not_split(what: Conv, unsplit: bool, without_tiles: bool) -> None:
    assert (is_unsplit(what), has_no_tiles(what)) == (unsplit, without_tiles)
