"""Tells the hook which pairs of a query and a key cuDNN's attention computes where Transformer Engine's sequences have
lengths of their own.

The lengths are in device memory (`cu_seqlens`), and cuDNN's graph only has the longest. Where they are not known,
packed sequences count as equally long, and padded ones as full.
"""

from __future__ import annotations

from functools import wraps
from inspect import signature
from typing import TYPE_CHECKING, Any

from ...private.imports import when_imported
from ..control_tensors import ControlTensors
from . import attention

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

FUNCTIONS = ("fused_attn_fwd", "fused_attn_bwd")
MODULE = "transformer_engine.pytorch.cpp_extensions.fused_attn"
PACKED_DIMS = 3  # of queries: all tokens, heads, depth


def told(control: ControlTensors, function: Callable[..., Any]) -> Callable[..., Any]:
    """Returns the function to call in the place of Transformer Engine's function."""
    arguments = signature(function)

    @wraps(function)
    def attend(*args: Any, **kwargs: Any) -> Any:
        bound = arguments.bind(*args, **kwargs)
        bound.apply_defaults()
        found = _sequences(control, bound.arguments)
        if found is None:
            return function(*args, **kwargs)
        control.hook.sequences(found)
        try:
            return function(*args, **kwargs)
        finally:
            control.hook.sequences(None)

    return attend


def _sequences(control: ControlTensors, given: dict[str, Any]) -> tuple[int, ...] | None:
    """Returns the fields of a `packed` signature; None if all sequences are as long as the longest."""
    mask, q = given.get("attn_mask_type", "padding"), given["q"]
    if "padding" not in mask:
        return None
    ends_q, ends_k = given["cu_seqlens_q"], given["cu_seqlens_kv"]
    left, right = given.get("window_size") or (-1, -1)
    packed = q.dim() == PACKED_DIMS
    return attention.sequences(control, True, q, given["k"], "causal" in mask, left, right, ends_q, ends_k, packed)


def follow(control: ControlTensors) -> None:
    """Makes Transformer Engine's functions tell the hook from now on. Called once, in the forker."""

    def change(module: ModuleType) -> None:
        for name in FUNCTIONS:
            if hasattr(module, name):
                setattr(module, name, told(control, getattr(module, name)))

    when_imported(MODULE, change)
