"""Products of 8 bits whose operands have scales of many small blocks take longer than those with one scale."""

from __future__ import annotations

import pytest

from profiles import CostModel, load_gpu

H200 = CostModel(load_gpu("h200"))


def cost(scales: str, b: str = "f8e4m3", n: int = 8192) -> int:
    return H200.cost(f"gemm;cublasLtMatmul;t;n;4096;{n};4096;1;f8e4m3;{b};bf16;f32;{scales};;").solo_ns


def test_scales_of_blocks_and_of_vectors() -> None:
    """te.Linear with Float8BlockScaling: weights in blocks of 128 x 128; gradients of weights by vectors."""
    plain = cost("default")
    assert cost("bvec128_ablk128") == pytest.approx(1.19 * plain, rel=0.02)
    assert cost("avec128_bvec128") == pytest.approx(1.52 * plain, rel=0.02)


def test_a_gradient_of_five_bits_of_exponent() -> None:
    assert 1.0 < cost("default", "f8e5m2", 8200) / cost("default", "f8e4m3", 8200) < 1.1


@pytest.mark.parametrize(
    ("tokens", "rows", "columns", "us"),
    [(512, 4096, 14336, 66.9), (512, 6144, 4096, 30.9), (1024, 8192, 8192, 121.2), (1024, 32000, 4096, 218.6)],
)
def test_gradients_of_weights_by_few_tokens(tokens: int, rows: int, columns: int, us: float) -> None:
    """Measured on an H200, and in no fit. Without fast accumulation tiles are smaller, so that few tokens, which are
    their depth, make each of them dear.
    """
    gradient = f"gemm;cublasLtMatmul;t;n;{columns};{rows};{tokens};1;f8e4m3;f8e5m2;bf16;f32;default;;"
    assert H200.cost(gradient).solo_ns == pytest.approx(1e3 * us, rel=0.06)
