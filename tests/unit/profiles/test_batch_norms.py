"""Batch norm with channels last, cuDNN's and PyTorch's, in traces of ResNets (laboratory/rows/steps-h100.jsonl.gz)."""

import pytest

from profiles.descriptions.gpu import load_gpu
from profiles.models.batch_norms import norm, sharing
from profiles.models.dispatch import estimate
from profiles.signature import Kernel, Norm


def of(direction, *x):
    return Norm(direction, "spatial_persistent", x, "f16", "nhwc", "", ())


@pytest.mark.parametrize(
    ("direction", "x", "grid"),
    [
        ("fwd", (128, 1024, 14, 14), (66, 4)),
        ("fwd", (96, 1024, 14, 14), (49, 5)),
        ("fwd", (96, 2048, 7, 7), (13, 20)),
        ("fwd", (128, 512, 28, 28), (262, 1)),
        ("fwd", (96, 128, 56, 56), None),
        ("bwd", (128, 1024, 14, 14), (131, 2)),
        ("bwd", (96, 512, 14, 14), (118, 2)),
        ("bwd", (96, 2048, 7, 7), (25, 10)),
        ("bwd", (128, 512, 28, 28), None),
    ],
)
def test_blocks_share_the_pixels_of_64_channels(direction, x, grid):
    assert sharing(of(direction, *x), 264) == grid


@pytest.mark.parametrize(
    ("direction", "x", "us"),
    [
        ("fwd", (128, 256, 56, 56), 237.2),
        ("fwd", (96, 512, 28, 28), 136.4),
        ("fwd", (128, 1024, 14, 14), 63.8),
        ("bwd", (128, 256, 56, 56), 362.6),
        ("bwd", (128, 1024, 14, 14), 104.5),
        ("bwd", (96, 2048, 7, 7), 39.6),
    ],
)
def test_inputs_that_fit_are_read_once(direction, x, us):
    assert norm(load_gpu("h100"), of(direction, *x)).solo_ns / 1e3 == pytest.approx(us, rel=0.12)


@pytest.mark.parametrize(
    ("kernel", "shape", "grid", "measured_us"),
    [
        ("collect_statistics", (96, 896, 14, 14), (28, 74), 60.0),
        ("collect_statistics", (96, 512, 28, 28), (16, 128), 129.3),
        ("collect_statistics", (96, 448, 56, 56), (14, 128), 363.6),
        ("collect_statistics", (96, 32, 112, 112), (1, 128), 275.7),  # a block on each SM
        ("collect_statistics", (96, 64, 112, 112), (2, 128), 281.0),  # two, at once
        ("backward_reduce", (96, 1024, 14, 14), (32, 74), 52.9),
        ("backward_reduce", (96, 256, 56, 56), (8, 128), 142.2),
        ("backward_reduce", (96, 448, 56, 56), (14, 128), 233.9),
    ],
)
def test_sums_of_channels_go_through_rows_in_rounds(
    kernel: str, shape: tuple[int, ...], grid: tuple[int, int], measured_us: float
) -> None:
    """Kernels of PyTorch, channels last, in two ResNets' steps on an H100; these were in no fit."""
    name = f"void at::native::batch_norm_{kernel}_channels_last_kernel<c10::BFloat16, float, 4>(int)"
    what = Kernel(name, (*grid, 1), (32, 16, 1), 0, "aten::native_batch_norm", (shape,))
    assert estimate(load_gpu("h100"), what).solo_ns == pytest.approx(1e3 * measured_us, rel=0.12)


@pytest.mark.parametrize(
    ("direction", "layout", "x", "dtype", "us"),
    [
        ("bwd", "nchw", (64, 1024, 14, 14), "f16", 43.5),  # a block keeps its channel
        ("bwd", "nchw", (16, 256, 4, 14, 14), "f32", 16.9),
        ("fwd", "nchw", (64, 2048, 7, 7), "f16", 36.1),  # odd pixels
        ("fwd", "nchw", (128, 256, 56, 56), "f16", 435.0),  # two blocks on an SM
        ("bwd", "nchw", (96, 64, 112, 112), "f16", 1725.0),
        ("bwd", "nchw", (16, 24, 112, 112), "f16", 164.0),  # the L2 cache has the inputs; in no fit
        ("fwd", "nhwc", (192, 216, 28, 28), "f16", 163.5),  # no multiple of 16
        ("fwd", "nhwc", (96, 168, 112, 112), "f16", 1084.0),  # in no fit
        ("fwd", "nhwc", (4, 32, 64, 64, 64), "f16", 96.5),  # half of 64 channels
    ],
)
def test_times_on_an_h100(direction: str, layout: str, x: tuple[int, ...], dtype: str, us: float) -> None:
    """laboratory/rows/more-convolutions-h100.jsonl.gz and dense-h100.jsonl.gz"""
    mode = "spatial_persistent" if layout == "nhwc" else "spatial"
    found = norm(load_gpu("h100"), Norm(direction, mode, x, dtype, layout, "", ())).solo_ns / 1e3
    assert found == pytest.approx(us, rel=0.19)
