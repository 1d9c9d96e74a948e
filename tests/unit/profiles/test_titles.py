"""Signatures as people name the work."""

from __future__ import annotations

import pytest

from profiles import title


@pytest.mark.parametrize(
    ("signature", "expected"),
    [
        (
            "gemm;cublasGemmEx;t;n;4096;8192;1024;1;bf16;bf16;bf16;f32;default;aten::mm;[[8192, 1024]]",
            "gemm bf16 m=4096 n=8192 k=1024 (aten::mm)",
        ),
        (
            "gemm;cublasGemmStridedBatchedEx;t;n;64;64;32;12;f16;f16;f16;f32;default;;",
            "gemm f16 m=64 n=64 k=32 batch=12",
        ),
        ("copy;h2d;1048576;pinned", "copy h2d 1,048,576 bytes"),
        ("memset;512", "memset 512 bytes"),
        (
            "kernel;_ZN2at6native13gather_kernelIfEEvPf;8,2,1;32,1,1;0;aten::gather;",
            "gather_kernel grid=8x2 (aten::gather)",
        ),
        ("nonsense", "nonsense"),
    ],
)
def test_a_title_names_what_decides_the_time(signature: str, expected: str) -> None:
    assert title(signature) == expected


def test_a_title_is_short() -> None:
    assert len(title(f"kernel;{'x' * 300};1,1,1;1,1,1;0;;")) == 96
