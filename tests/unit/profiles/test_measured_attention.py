"""FlashAttention's kernels on an H100 (laboratory/rows/attention-h100.jsonl.gz): the model against their times."""

from __future__ import annotations

import gzip
import json
from collections import defaultdict
from math import log
from pathlib import Path
from statistics import fmean, median
from typing import Any

import pytest

import profiles
from emu.control.extensions.attention import together
from profiles.models.dispatch import estimate
from profiles.signature import Kernel, Sequences, parse

DATA = Path(__file__).parents[3] / "laboratory" / "rows" / "attention-h100.jsonl.gz"


def signature(case: dict[str, Any], kernel: str) -> Kernel:
    """Returns the signature of a kernel of a case, as the hook writes it."""
    before, after = case["window"], 0 if case["causal"] else case.get("right")
    lengths = case.get("lengths")
    of_all = (case["b"], case["s"]) if lengths is None else (sum(lengths),)
    q, k = (*of_all, case["h"], case["d"]), (*of_all, case["kv"], case["d"])
    backward = "_bwd_" in kernel
    op = f"aten::_flash_attention_{'backward' if backward else 'forward'}"
    what = Kernel(kernel, (1, 1, 1), (128, 1, 1), 0, op, (*((q,) if backward else ()), q, k, k))
    if lengths is None and before is None:
        return what
    each = ((case["s"], case["s"]),) if lengths is None else tuple((n, n) for n in lengths)
    numbers = together(each, before, after, case["b"] if lengths is None else 1)
    return Sequences(what.name, what.grid, what.block, 0, what.op, what.sizes, *numbers)


@pytest.fixture(scope="module")
def errors() -> dict[tuple[str, str], list[float]]:
    """Returns the errors by pass, and by which keys the queries see."""
    found = defaultdict(list)
    gpu = profiles.load_gpu("h100")
    with gzip.open(DATA, "rt") as file:
        for case in map(json.loads, file):
            sees = "window" if case["window"] else "causal" if case["causal"] else "all"
            for kernel, us in case["kernels"].items():
                if "fwd_kernel" in kernel or "bwd_dq" in kernel:
                    ns = estimate(gpu, signature(case, kernel)).solo_ns
                    direction = "fwd" if "fwd" in kernel else "bwd"
                    found[direction, sees].append(ns / (median(us) * 1e3) - 1)
    return found


@pytest.mark.parametrize("sees", ["all", "causal", "window"])
@pytest.mark.parametrize("direction", ["fwd", "bwd"])
def test_attention(errors: dict[tuple[str, str], list[float]], direction: str, sees: str) -> None:
    found = errors[direction, sees]
    assert len(found) >= 52
    assert fmean(map(abs, found)) < 0.11
    assert abs(fmean(found)) < 0.08


@pytest.mark.parametrize(("way", "measured_us"), [("F", 738.7), ("B", 1333.2)])
def test_efficient_kernels_over_sequences_shorter_than_a_tile(way: str, measured_us: float) -> None:
    """Their tiles have 64 queries and keys: was 3 and 3.6 times as long. PatchTST's 63 patches on an H200."""
    qkv, rows = "[2688, 63, 8, 32]", "[2688, 8, 64]"
    name, block, sizes = {
        "F": ("aligned_64x64_rf_sm80", "32,4,1;36352;aten::_efficient_attention_forward", f"{qkv}, {qkv}, {qkv}"),
        "B": (
            "aligned_64x64_k32_sm80",
            "128,1,1;53504;aten::_efficient_attention_backward",
            f"{qkv}, {qkv}, {qkv}, {qkv}, [], {qkv}, [], [], [], [], {rows}",
        ),
    }[way]
    what = parse(f"kernel;fmha_cutlass{way}_f32_{name};1,8,2688;{block};[{sizes}]")
    found_us = estimate(profiles.load_gpu("h200"), what).solo_ns / 1e3
    assert found_us == pytest.approx(measured_us, rel=0.15)


@pytest.mark.parametrize("way", ["F", "B"])
def test_efficient_kernels_with_and_without_a_causal_mask(way: str) -> None:
    """Causal ones were priced as if all keys were seen: 35 % off in the mean."""
    errors = []
    with gzip.open(DATA.parent / "conditions-h100.jsonl.gz", "rt") as file:
        for one in map(json.loads, file):
            if f"fmha_cutlass{way}_" not in one.get("signature", ""):
                continue
            what = parse(one["signature"])
            assert isinstance(what, Kernel)
            batch, _, _, length, _, causal, *_ = one["case"].split()
            if causal == "True":
                numbers = together(((int(length), int(length)),), None, 0, int(batch))
                what = Sequences(what.name, what.grid, what.block, 0, what.op, what.sizes, *numbers)
            errors.append(log(estimate(profiles.load_gpu("h100"), what).solo_ns / 1e3 / one["written"]))
    assert len(errors) == 32
    assert fmean(map(abs, errors)) < 0.12
