"""PyTorch's batch norm and depthwise gradients against laboratory/rows/sized-h100.jsonl.gz
(laboratory/programs/sized_on_gpu.py) and
laboratory/rows/pointwise-h100.jsonl.gz; a scatter of a step that is in no fit."""

from __future__ import annotations

import gzip
import json
from math import ceil, log, prod
from pathlib import Path
from statistics import median

import pytest

import profiles
from profiles.models.dispatch import estimate
from profiles.signature import Conv, Kernel, Signature, parse

GPU = profiles.load_gpu("h100")
DATA = Path(__file__).parents[3] / "laboratory/rows/sized-h100.jsonl.gz"


def us(what: Signature) -> float:
    found = estimate(GPU, what)
    assert not found.unknown
    return found.solo_ns / 1e3


@pytest.mark.parametrize(
    ("name", "error", "count"),
    [
        ("batch_norm_backward_kernel", 0.13, 130),  # 32 % before
        ("batch_norm_collect_statistics_kernel", 0.14, 130),  # 28 %
    ],
)
def test_batch_norm_of_many_sizes_costs_what_was_measured(name: str, error: float, count: int) -> None:
    errors = []
    with gzip.open(DATA, "rt") as lines:
        for line in lines:
            found = json.loads(line)
            if f"{name}<" in found.get("signature", ""):
                measured = found["written"] if "written" in found else median(found["each"])
                what = parse(found["signature"])
                assert isinstance(what, Kernel)
                errors.append(abs(log(us(what) / measured)))
    assert len(errors) >= count
    assert sum(errors) / len(errors) < error


def gradients(x: tuple[int, ...], y: tuple[int, ...], taps: tuple[int, ...], known: str) -> tuple[float, float]:
    """Returns the times, in us, of the gradient of the data, by the kernel with these template arguments, and of the
    weights.
    """
    sizes = (y, x, (x[1], 1, *taps), (), ())
    threads = min(32 * x[0], 256)
    base = "void at::native::(anonymous namespace)::conv_depthwise2d_"
    op = "aten::convolution_backward"
    data = Kernel(
        f"{base}backward_kernel<{known}, c10::Half, int>(int)", (ceil(prod(x) / 1024), 1, 1), (1024, 1, 1), 0, op, sizes
    )
    weights = Kernel(
        f"{base}grad_weight_kernel<c10::Half, unsigned int>(int)",
        (x[1] * prod(taps), 1, 1),
        (threads, 1, 1),
        32,
        op,
        sizes,
    )
    return us(data), us(weights)


def test_depthwise_gradients_cost_by_what_their_kernels_know() -> None:
    """Before: 7,404 us of data as 5,300, 12,517 of weights as 15,800, 2,050 of data as 2,350."""
    data, weights = gradients((32, 1152, 56, 56), (32, 1152, 56, 56), (9, 9), "0, 1")
    assert (data, weights) == (pytest.approx(7404.0, rel=0.1), pytest.approx(12517.0, rel=0.1))
    data, weights = gradients((64, 1024, 40, 40), (64, 1024, 40, 40), (5, 5), "5, 1")
    assert (data, weights) == (pytest.approx(2049.5, rel=0.1), pytest.approx(3571.1, rel=0.1))
    # measured together
    assert sum(gradients((128, 96, 20, 20), (128, 96, 10, 10), (11, 11), "0, 2")) == pytest.approx(1104.7, rel=0.15)
    assert sum(gradients((128, 1024, 1, 512), (128, 1024, 1, 256), (1, 9), "0, 0")) == pytest.approx(2736.7, rel=0.1)


def test_the_gradient_of_a_depthwise_line_knows_its_pixels() -> None:
    """Shapes of three dimensions; a speech model's step, both gradients: 734 us on an H200."""
    flat = gradients((48, 512, 1, 399), (48, 512, 1, 399), (1, 31), "0, 1")
    line = gradients((48, 512, 399), (48, 512, 399), (31,), "0, 1")
    assert line == flat
    assert sum(line) == pytest.approx(734.0, rel=0.15)


@pytest.mark.parametrize(
    ("m", "n", "k", "batch", "measured"),
    [(64, 512, 512, 384, 181.5), (96, 384, 100352, 1, 83.3), (4096, 16, 4096, 1, 29.2), (14336, 2048, 4096, 8, 8054.6)],
)
def test_turning_operands_of_tf32_costs_computation_not_memory(
    m: int, n: int, k: int, batch: int, measured: float
) -> None:
    """laboratory/rows/conditions-h100.jsonl.gz; the first three were 1.4 to 1.5 times too slow."""
    what = parse(f"gemm;cublasGemmEx;n;t;{m};{n};{k};{batch};f32;f32;f32;tf32;default;;")
    assert us(what) == pytest.approx(measured, rel=0.15)


@pytest.mark.parametrize(
    ("direction", "shape", "taps", "dtype", "measured"),
    [
        ("fwd", (16, 960, 28, 28), 11, "bf16", 5110.5),  # 260 us before
        ("dgrad", (16, 960, 28, 28), 11, "bf16", 1767.4),
        ("wgrad", (16, 960, 28, 28), 11, "bf16", 2392.0),
        ("fwd", (128, 240, 10, 10), 11, "f16", 401.7),
        ("wgrad", (128, 240, 10, 10), 11, "f16", 609.9),
        ("fwd", (256, 1152, 8, 8), 9, "tf32", 3766.9),  # in no fit
        ("dgrad", (256, 32, 20, 20), 9, "tf32", 329.3),
        ("fwd", (256, 32, 20, 20), 9, "tf32", 924.5),
    ],
)
def test_depthwise_filters_of_more_than_49_taps_have_slow_kernels(
    direction: str, shape: tuple[int, ...], taps: int, dtype: str, measured: float
) -> None:
    filters, same = (shape[1], 1, taps, taps), (taps // 2, taps // 2)
    what = Conv(direction, shape, filters, shape, same, (1, 1), (1, 1), shape[1], dtype, "nhwc", "", ())
    assert us(what) == pytest.approx(measured, rel=0.15)


def test_half_of_a_large_scatter_costs_half() -> None:
    """A step of a graph network: PyTorch adds 806 million items in two launches, of 1,365 us each on an H200."""
    name = (
        "void at::native::_scatter_gather_elementwise_kernel<128, 8, at::native::_cuda_scatter_gather_internal_kernel"
        "<true, float, long>::operator()<at::native::ReduceAdd>(int)::{lambda(int)#1}>(int, int)"
    )
    sizes = ((150000, 256), (), (3149981, 256), (3149981, 256))
    half = Kernel(name, (393748, 1, 1), (128, 1, 1), 0, "aten::scatter_add_", sizes)
    whole = Kernel(name, (787495, 1, 1), (128, 1, 1), 0, "aten::scatter_add_", sizes)
    assert us(half) == pytest.approx(us(whole) / 2, rel=0.01)
