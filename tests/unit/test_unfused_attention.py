"""Transformer Engine's unfused attention: a rank that computes it says so, unless the script asked for it."""

from __future__ import annotations

import sys
from types import ModuleType

import pytest

from emu.start import unfused_attention
from emu.start.advice import APEX, TRANSFORMER_ENGINE, advice

BACKENDS = "transformer_engine.pytorch.attention.dot_product_attention.backends"


@pytest.mark.parametrize(("environment", "expected"), [({}, 2), ({"NVTE_FUSED_ATTN": "0"}, 0)])
def test_unfused_attention_is_told(environment: dict[str, str], expected: int, monkeypatch: pytest.MonkeyPatch) -> None:
    class UnfusedDotProductAttention:
        def forward(self, query: int, scale: int = 1) -> int:
            return query * scale

    module = ModuleType(BACKENDS)
    vars(module)["UnfusedDotProductAttention"] = UnfusedDotProductAttention
    monkeypatch.setitem(sys.modules, BACKENDS, module)
    monkeypatch.delenv("NVTE_FUSED_ATTN", raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    told: list[tuple[str, str]] = []
    unfused_attention.install(lambda name, text: told.append((name, text)))
    attention = UnfusedDotProductAttention()
    assert [attention.forward(3), attention.forward(3, scale=4)] == [3, 12]
    assert told == [("unfused attention", unfused_attention.TEXT)] * expected  # who is told shows each name once


@pytest.mark.parametrize(
    "error",
    [
        FileNotFoundError("Could not find shared object file for Transformer Engine torch lib."),
        ModuleNotFoundError("No module named 'transformer_engine_torch'"),
    ],
)
def test_a_script_that_asks_for_transformer_engine_without_its_extension_is_told_how_to_build_it(
    error: Exception,
) -> None:
    assert advice(error) == TRANSFORMER_ENGINE
    assert "examples/build_transformer_engine.sh" in TRANSFORMER_ENGINE


@pytest.mark.parametrize(
    "error",
    [
        ModuleNotFoundError("No module named 'fused_weight_gradient_mlp_cuda'"),
        RuntimeError("the custom CUDA extension fused_weight_gradient_mlp_cuda module is not found"),
    ],
)
def test_who_misses_apex_s_accumulation_is_told_the_option_that_does_without(error: Exception) -> None:
    assert advice(error) == APEX
    assert "--no-gradient-accumulation-fusion" in APEX
