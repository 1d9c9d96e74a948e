"""Signatures: what parses, and what is refused with the field's name."""

from __future__ import annotations

import pytest

import profiles
from profiles.signature import Conv, Copy, Gemm, Kernel, Memset, Sdpa, parse, sizes_of


def test_kernel() -> None:
    found = parse("kernel;_Z3foov;2,3,1;128,1,1;4096;aten::add;[[8, 64], [64], []]")
    assert found == Kernel("_Z3foov", (2, 3, 1), (128, 1, 1), 4096, "aten::add", ((8, 64), (64,), ()))


def test_gemm_keeps_order() -> None:
    found = parse("gemm;cublasGemmEx;t;n;10;20;30;2;bf16;f16;f32;f32;bias;aten::mm;[]")
    assert isinstance(found, Gemm)
    assert (found.m, found.n, found.k, found.batch, found.a, found.b, found.c) == (10, 20, 30, 2, "bf16", "f16", "f32")


def test_others() -> None:
    conv = parse("conv;wgrad;8x3x32x32;16x3x3x3;8x16x32x32;1x1;1x1;1x1;1;f16;nhwc;op;[]")
    assert isinstance(conv, Conv)
    assert conv.w == (16, 3, 3, 3)
    sdpa = parse("sdpa;bwd;1x2x3x4;1x2x3x4;1x2x3x4;bf16;1;0;;")
    assert isinstance(sdpa, Sdpa)
    assert (sdpa.causal, sdpa.dropout, sdpa.sizes) == (True, False, ())
    assert parse("copy;h2d;1024;pinned") == Copy("h2d", 1024, True)
    assert parse("memset;0") == Memset(0)


@pytest.mark.parametrize(
    ("text", "shapes"),
    [
        ("", ()),
        ("[]", ()),
        ("[[], []]", ((), ())),
        ("[[8,64],[64]]", ((8, 64), (64,))),
        ("[[[4096], [2, 3]], [], [7]]", ((4096,), (2, 3), (), (7,))),
        ("[[8, 64], [64], [12", ((8, 64), (64,))),
    ],
)
def test_sizes(text: str, shapes: tuple[tuple[int, ...], ...]) -> None:
    assert sizes_of(text) == shapes


@pytest.mark.parametrize(
    ("signature", "message"),
    [
        ("", "unknown kind ''"),
        ("kernal;x", "unknown kind 'kernal'; known: kernel"),
        ("memset", "memset has 1 fields after the first, found 0"),
        ("memset;1;2", "memset has 1 fields after the first, found 2"),
        ("memset;-1", "bytes: expected a non-negative integer"),
        ("memset;1e3", "bytes: expected a non-negative integer"),
        ("memset;99999999999999999999", "bytes: expected a non-negative integer"),
        ("kernel;;1,1,1;1,1,1;0;;", "name: empty"),
        ("kernel;k;1,1;1,1,1;0;;", "grid: expected three positive integers"),
        ("kernel;k;1,1,1;0,1,1;0;;", "block: expected three positive integers"),
        ("kernel;k;1,1,1;1,1,1;0;;hello", "sizes: expected nested lists"),
        ("gemm;c;x;n;1;1;1;1;f32;f32;f32;f32;;;", "transa: expected n, t or c"),
        ("gemm;c;n;n;1;1;1;1;f31;f32;f32;f32;;;", "dtype: expected one of"),
        ("conv;sideways;1x1x1x1;1x1x1x1;1x1x1x1;;;;1;f32;nchw;;", "direction: expected fwd, dgrad, wgrad"),
        ("conv;fwd;1x1;1x1x1x1;1x1x1x1;;;;1;f32;nchw;;", "x dims: expected at least 3 dims"),
        ("sdpa;fwd;1x1x1x1;1x1x1x1;1x1x1x1;f16;yes;0;;", "causal: expected 0, 1"),
        ("copy;up;1;pinned", "direction: expected h2d"),
        ("copy;h2d;1;soft", "memory: expected pinned, pageable"),
    ],
)
def test_malformed(signature: str, message: str) -> None:
    with pytest.raises(profiles.ProfileError, match=message):
        profiles.CostModel(profiles.load_gpu("h200")).cost(signature)


def test_not_utf8() -> None:
    with pytest.raises(profiles.ProfileError, match="not UTF-8"):
        profiles.CostModel(profiles.load_gpu("h200")).cost(b"memset;\xff")
