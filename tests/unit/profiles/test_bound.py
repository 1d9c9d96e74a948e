"""Bounds of a kernel, as the report names them."""

from __future__ import annotations

import pytest

import profiles

MODEL = profiles.CostModel(profiles.load_gpu("h200"))


@pytest.mark.parametrize(
    ("signature", "bound"),
    [
        ("gemm;cublasGemmEx;t;n;4096;4096;4096;1;bf16;bf16;bf16;f32;default;;", "compute"),
        ("gemm;cublasGemmEx;t;n;64;16;64;1;bf16;bf16;bf16;f32;default;;", "latency"),
        ("gemm;cublasGemmEx;t;n;1;8192;8192;1;bf16;bf16;bf16;f32;default;;", "memory"),
        ("memset;1000000000", "memory"),
        ("memset;8", "latency"),
        ("copy;h2d;100000000;pinned", "pcie"),
        ("copy;d2d;1000000000;pinned", "memory"),
        ("kernel;what_is_this;100000,1,1;128,1,1;0;aten::op;[[10240, 10240]]", "memory"),
    ],
)
def test_a_kernel_is_bound_by_what_takes_its_time(signature: str, bound: str) -> None:
    assert MODEL.cost(signature).bound == bound
