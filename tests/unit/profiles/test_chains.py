"""Kernels whose time is that of their longest chain, and convolutions that cuDNN computes by slow kernels: against
measured times of an H100 (laboratory/rows/blocks-h100.jsonl.gz)."""

from __future__ import annotations

from dataclasses import replace

import pytest

import profiles
from profiles.models.dispatch import estimate
from profiles.signature import Conv, Kernel, Scaled, parse

GPU = profiles.load_gpu("h100")
UPSAMPLED = (
    "void at::native::(anonymous namespace)::upsample_bilinear2d_backward_out_frame<{}, float>(unsigned long, int, int)"
)


def us(what: Kernel | Conv) -> float:
    found = estimate(GPU, what)
    assert not found.unknown
    return found.solo_ns / 1e3


@pytest.mark.parametrize(
    ("boxes", "kept", "measured"),
    [(1000, 973, 412.6), (2000, 1909, 812.0), (8663, 7435, 5074.2), (20000, 15204, 16104.5)],
)
def test_boxes_are_kept_one_after_another(boxes: int, kept: int, measured: float) -> None:
    """More random boxes were kept than of a detector's proposals (laboratory/notes/data-shapes.md)."""
    threads = min(-(-boxes // 64), 64)
    name = "vision::ops::gather_keep_from_mask(bool*, unsigned long long const*, int)"
    what = Kernel(name, (1, 1, 1), (threads, 1, 1), 8 * threads, "torchvision::nms", ((boxes, 4), (boxes,), ()))
    assert us(what) == pytest.approx(measured * 5477 / 8663 * boxes / kept, rel=0.1)


def test_all_boxes_are_compared() -> None:
    name = "void vision::ops::nms_kernel_impl<float>(int, double, float const*, unsigned long long*)"
    what = Kernel(name, (136, 136, 1), (64, 1, 1), 1024, "torchvision::nms", ((8663, 4), (8663,), ()))
    assert us(what) == pytest.approx(101.9, rel=0.1)


def test_a_frame_of_ctc_waits_for_the_one_before() -> None:
    name = "void at::native::(anonymous namespace)::ctc_loss_log_alpha_gpu_kernel<float, long>(float*)"
    sizes = ((299, 16, 1024), (16, 40), (), (), (), ())
    what = Kernel(name, (1, 2, 1), (128, 8, 1), 0, "aten::_ctc_loss", sizes)
    longer = replace(what, sizes=((598, 16, 1024), *sizes[1:]))
    assert us(what) == pytest.approx(180, rel=0.1)
    assert us(longer) > 1.9 * us(what)


@pytest.mark.parametrize(
    ("dtype", "after", "measured"),
    [
        ("float", 98, 23.1),
        ("float", 196, 138.0),
        ("float", 392, 1255.4),
        ("float", 784, 19659.8),
        ("c10::BFloat16", 196, 357.6),
        ("c10::BFloat16", 392, 5206.6),
        ("c10::BFloat16", 784, 75623.9),
    ],
)
def test_additions_to_the_same_pixel_wait_for_each_other(dtype: str, after: int, measured: float) -> None:
    sizes = ((8, 21, after, after), (), (), (), (), ())
    blocks = -(-8 * 21 * after * after // 1024)
    name, op = UPSAMPLED.format(dtype), "aten::upsample_bilinear2d_backward"
    what = Scaled(name, (blocks, 1, 1), (1024, 1, 1), 0, op, sizes, (49, 49), (after, after))
    assert us(what) == pytest.approx(measured, rel=0.25)


@pytest.mark.parametrize(
    ("signature", "measured"),
    [
        ("conv;wgrad;64x384x14x14;384x1x7x7;64x384x14x14;3x3;1x1;1x1;384;tf32;nhwc;;", 1462.7),  # an H200
    ],
)
def test_gradients_of_wide_depthwise_filters_have_a_slow_kernel(signature: str, measured: float) -> None:
    what = parse(signature)
    assert isinstance(what, Conv)
    assert us(what) == pytest.approx(measured, rel=0.1)


@pytest.mark.parametrize(
    ("grid", "image", "taps", "measured"),
    [
        (32768, (32, 256, 1, 4096), (1, 3), 346.3),  # a step of a network of dilated lines, in no fit
        (12324, (8, 1536, 1, 1024), (1, 4), 137.7),  # laboratory/rows/varied-kernels-h100.jsonl.gz, in the fit
        (2048, (16, 128, 35, 35), (4, 4), 38.0),
    ],
)
def test_a_depthwise_filter_of_any_size_costs_as_much_to_begin_as_many_taps(
    grid: int, image: tuple[int, ...], taps: tuple[int, int], measured: float
) -> None:
    name = "void at::native::conv_depthwise2d_forward_kernel_generic<c10::BFloat16, int>(int)"
    sizes = (image, (image[1], 1, *taps), (), (), (), (), ())
    what = Kernel(name, (grid, 1, 1), (1024, 1, 1), 0, "aten::_conv_depthwise2d", sizes)
    assert us(what) == pytest.approx(measured, rel=0.12)


def test_fewer_channels_than_sms_leave_most_of_the_gpu_idle() -> None:
    """Instance norm in three dimensions: 726 us for 64 channels (laboratory/rows/varied-kernels-h100.jsonl.gz)."""
    name = "void at::native::batch_norm_transform_input_kernel<c10::Half, c10::Half, float, true, int>(int)"
    sizes = ((1, 64, 96, 96, 96), (), (), (), (), (), (), ())
    assert us(Kernel(name, (64, 1, 1), (512, 1, 1), 0, "aten::native_batch_norm", sizes)) == pytest.approx(726, rel=0.1)


def test_a_sparse_gradient_costs_its_rows_not_its_table() -> None:
    """67,334 rows of 128 numbers of a table of 200,000 rows are read and written: 69 MB, 23 us at 3 TB a second."""
    name = "_ZN2at6native5apply20coalesceValuesKernelIffEEvPlS3_PT_S5_lll"
    what = Kernel(name, (16834, 1, 1), (32, 4, 1), 0, "aten::_coalesce", ((200_000, 128),))
    assert us(what) == pytest.approx(23, rel=0.25)


def test_an_assertion_looks_at_one_number() -> None:
    """Distributions of PyTorch 2.15 launch it for each argument."""
    name = "_ZN2at6native25_assert_async_cuda_kernelIbEEvPKT_NS0_3MsgE"
    assert us(Kernel(name, (1, 1, 1), (1, 1, 1), 0, "aten::_assert_async", ((), ()))) < 5


@pytest.mark.parametrize(
    ("direction", "x", "w", "side", "measured"),
    [
        ("fwd", (64, 3, 224, 224), (64, 3, 3, 3), 112, 248.0),
        ("fwd", (16, 3, 320, 320), (32, 3, 3, 3), 160, 68.3),
        ("fwd", (128, 3, 224, 224), (96, 3, 4, 4), 56, 255.5),
        ("wgrad", (16, 3, 320, 320), (32, 3, 3, 3), 160, 85.0),
        ("wgrad", (128, 3, 224, 224), (96, 3, 4, 4), 56, 247.0),
    ],
)
def test_first_layers_of_bf16_with_a_stride(
    direction: str, x: tuple[int, ...], w: tuple[int, ...], side: int, measured: float
) -> None:
    """Forward without tensor cores, in tiles of 32 channels; weights' images are padded, not turned. They were priced
    twice as long.
    """
    stride = (4, 4) if w[2] == 4 else (2, 2)
    padding = (0, 0) if w[2] == 4 else (1, 1)
    what = Conv(direction, x, w, (x[0], w[0], side, side), padding, stride, (1, 1), 1, "bf16", "nhwc", "", ())
    assert us(what) == pytest.approx(measured, rel=0.15)


def test_no_groups_are_one() -> None:
    what = Conv("fwd", (8, 64, 7, 7), (1, 64, 7, 7), (8, 1, 7, 7), (3, 3), (1, 1), (1, 1), 1, "f16", "nhwc", "", ())
    assert us(replace(what, groups=0)) == us(what)
