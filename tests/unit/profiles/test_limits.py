"""No model may be faster than the GPU's peak, or a hundred times slower than the work needs."""

from __future__ import annotations

from dataclasses import replace

import pytest

import profiles
from profiles.models.dispatch import estimate
from profiles.models.limits import bounded, least_ns
from profiles.signature import parse

GPU = profiles.load_gpu("h200")
GEMM = parse("gemm;cublasGemmEx;t;n;4096;4096;4096;1;bf16;bf16;bf16;f32;default;;")
KERNEL = parse("kernel;what_is_this;1000,1,1;128,1,1;0;aten::op;[[1024, 1024]]")


def test_what_lies_between_the_bounds_stays() -> None:
    found = estimate(GPU, GEMM)
    assert not found.unknown
    assert bounded(GPU, GEMM, found) == found


def test_products_above_the_peak_rate_are_moved_to_it() -> None:
    found = bounded(GPU, GEMM, replace(estimate(GPU, GEMM), solo_ns=1_000.0, contended_ns=1_500.0))
    assert found.solo_ns == 2 * 4096**3 / GPU.peak_flops("bf16") * 1e9
    assert found.contended_ns == 1.5 * found.solo_ns
    assert "faster than the peak" in found.unknown


def test_bytes_above_the_bandwidth_are_moved_to_it() -> None:
    fill = parse("memset;1000000000")
    found = bounded(GPU, fill, replace(estimate(GPU, fill), solo_ns=10.0))
    assert found.solo_ns == (1e9 - GPU.memory.l2_nbytes) / GPU.memory.bandwidth_gb_per_s
    assert found.unknown


def test_a_hundred_times_too_long_is_cut() -> None:
    found = bounded(GPU, GEMM, replace(estimate(GPU, GEMM), solo_ns=1e12, contended_ns=1e12))
    assert 100 * least_ns(GPU, GEMM, found) <= found.solo_ns < 1e9
    assert "100 times" in found.unknown


def test_a_kernel_of_few_blocks_may_take_as_long_as_its_sms_need() -> None:
    """An instance norm of one image: a block normalises a channel, so two channels have two SMs of the GPU."""
    norm = parse(
        "kernel;void at::native::batch_norm_backward_kernel<float>();2,1,1;512,1,1;0;aten::native_batch_norm_backward;"
        "[[1, 2, 64, 64, 64], [1, 2, 64, 64, 64], [], [], [], [2], [2], [], [], []]"
    )
    few = estimate(GPU, norm)
    assert not few.unknown
    assert few.solo_ns > 100 * 2 * 2 * 64**3 * 4 / GPU.memory.bandwidth_gb_per_s
    assert "100 times" in bounded(GPU, norm, replace(few, solo_ns=1e12, contended_ns=1e12)).unknown


def test_a_kernel_that_no_model_knows_is_reported_by_its_name() -> None:
    cost = profiles.CostModel(GPU).cost("kernel;what_is_this;1000,1,1;128,1,1;0;aten::op;[[1024, 1024]]")
    assert cost.source is profiles.Source.UNRECOGNISED
    assert "what_is_this" in cost.unknown
    assert cost.model == "by grid"


@pytest.mark.parametrize("direction", ["fwd", "bwd"])
def test_attention_over_few_tokens_computes_whole_tiles(direction: str) -> None:
    """8 units of 40 tokens take what 64 of 128 do, over a hundred times their bytes: no bound of that is right."""
    times = {
        (tokens, depth): estimate(GPU, parse(f"sdpa;{direction};{q};{q};{q};bf16;0;0;;"))
        for tokens, depth in ((8, 8), (40, 8), (64, 64), (128, 64))
        for q in (f"2048x8x{tokens}x{depth}",)
    }
    assert not any(one.unknown for one in times.values())
    assert times[8, 8].solo_ns > 0.4 * times[128, 64].solo_ns * (0.5 if direction == "bwd" else 1)
    assert times[64, 64].solo_ns < (0.8 if direction == "bwd" else 1.01) * times[128, 64].solo_ns
