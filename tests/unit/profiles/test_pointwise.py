"""1x1 filters, as measured on an H100 (laboratory/rows/convolutions-h100.jsonl.gz, more-convolutions-h100.jsonl.gz)."""

from __future__ import annotations

import pytest

from profiles.descriptions.gpu import load_gpu
from profiles.models.dispatch import estimate
from profiles.models.products.pointwise import by_images
from profiles.models.products.tiles import SINGLE_ITEMS, TENSOR_16, UNALIGNED
from profiles.signature import Conv

H100 = load_gpu("h100")


def filtered(direction: str, dtype: str, images: int, inner: int, side: int, outer: int) -> Conv:
    x, y = (images, inner, side, side), (images, outer, side, side)
    return Conv(direction, x, (outer, inner, 1, 1), y, (0, 0), (1, 1), (1, 1), 1, dtype, "nchw", "", ())


@pytest.mark.parametrize(
    ("direction", "dtype", "sizes", "us"),
    [
        ("wgrad", "tf32", (256, 256, 14, 768), 259),  # 201 MB of the images' parts are added up
        ("wgrad", "tf32", (64, 768, 14, 384), 110),
        ("wgrad", "f16", (128, 1024, 12, 512), 101),  # larger than the operands, which are turned round
        ("fwd", "tf32", (176, 256, 12, 1024), 108),  # one operand has k innermost
        ("dgrad", "tf32", (176, 256, 12, 1024), 103),  # none
        ("dgrad", "f16", (192, 80, 14, 480), 34),  # rows of 196 pixels
        ("dgrad", "f16", (64, 2304, 1, 96), 3),  # one pixel: channels are rows
        ("fwd", "f16", (96, 896, 1, 112), 3.8),
    ],
)
def test_times(direction: str, dtype: str, sizes: tuple[int, int, int, int], us: float) -> None:
    found = estimate(H100, filtered(direction, dtype, *sizes)).solo_ns / 1e3
    assert found == pytest.approx(us, rel=0.3)


def test_images_are_multiplied_one_by_one_where_their_parts_are_small() -> None:
    assert by_images(filtered("wgrad", "f16", 8, 384, 28, 512), TENSOR_16) is TENSOR_16
    assert by_images(filtered("wgrad", "f16", 8, 1280, 16, 1280), TENSOR_16) is None
    assert by_images(filtered("dgrad", "f16", 8, 1280, 16, 1280), TENSOR_16) is TENSOR_16


def test_rows_that_are_not_aligned_have_kernels_of_their_own() -> None:
    assert by_images(filtered("fwd", "f16", 8, 64, 14, 64), TENSOR_16) is UNALIGNED
    assert by_images(filtered("dgrad", "f16", 8, 64, 14, 64), TENSOR_16) is UNALIGNED
    assert by_images(filtered("dgrad", "f16", 8, 64, 6, 64), TENSOR_16) is None
    assert by_images(filtered("dgrad", "f16", 8, 64, 15, 64), TENSOR_16) is SINGLE_ITEMS
