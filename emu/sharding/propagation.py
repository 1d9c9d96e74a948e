"""Propagating shardings: how DTensor finds the sharding of an operator's result when it meets new arguments.

It runs thousands of Python functions, over a million for an optimizer with PyTorch 2.15. How many depends on what the
process has propagated before, and on whether another rank has told the result. So they are not counted: a propagation
takes a host time that follows from its arguments, whoever computes it. The plan of a redistribution, which it makes to
compare costs and which is kept for real redistributions, takes none.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ..interpreter.hook_library import Hook
from .results import Results, follows_from_name

_CODE_UNITS = 80
"""The mean length of the functions. All numbers below are such functions, run a moment before."""
_AN_OPERATOR = 3_500
_A_TENSOR_OF_A_LIST = 400
_A_RESULT_OF_A_LIST = 100
_A_SINGLE_DIM_RESULT = 1_250
"""The same for a strategy that DTensor expands to all dimensions of the mesh; from PyTorch 2.15 on for most lists."""
_A_SINGLE_DIM_PAIR = 8
"""Then all tensors are looked at for each result."""


def install(hook: Hook, folder: Path | None) -> None:
    """In the forker, once torch is imported. `folder`: where ranks keep results for each other; None: they do not."""
    from torch.distributed._functional_collectives import _are_we_tracing
    from torch.distributed.tensor import DTensor, _redistribute
    from torch.distributed.tensor._sharding_prop import ShardingPropagator

    results = Results(folder) if folder is not None else None
    tracing: Callable[[], bool] = _are_we_tracing
    original: Callable[[Any, Any], Any] = ShardingPropagator.propagate_op_sharding_non_cached

    @functools.wraps(original)
    def propagate(self: Any, op_schema: Any) -> Any:
        if hook.is_uncounted() or hook.measures_host() or tracing():
            return original(self, op_schema)
        shared = follows_from_name(self, op_schema)
        if shared:  # with or without `results`: how long a rank then waits for another one must change nothing
            hook.close_segments()
        hook.uncounted(1)
        try:
            if shared and results is not None:
                return results.get(op_schema, functools.partial(original, self, op_schema))
            return original(self, op_schema)
        finally:
            functions = functions_for(self, op_schema)
            hook.uncounted(-1)
            hook.python_work(functions, _CODE_UNITS)

    changed: Any = ShardingPropagator
    changed.propagate_op_sharding_non_cached = propagate
    propagator: Any = DTensor._op_dispatcher.sharding_propagator
    # It has a cache around the method as it was when it was made.
    propagator.propagate_op_sharding = type(propagator.propagate_op_sharding)(
        propagator.propagate_op_sharding_non_cached
    )
    redistribute: Any = _redistribute
    redistribute._gen_transform_infos = _uncounted(hook, redistribute._gen_transform_infos)


def functions_for(propagator: Any, schema: Any) -> int:
    """How many Python functions the propagation counts as. Measured with PyTorch 2.11 and 2.15 (docs/host.md)."""
    from torch.distributed.tensor._dtensor_spec import DTensorSpec

    lists = [
        sum(isinstance(one, DTensorSpec) for one in value)
        for value in (*schema.args_schema, *schema.kwargs_schema.values())
        if isinstance(value, (list, tuple))
    ]
    tensors, results = sum(lists), max(lists, default=0)
    functions = _AN_OPERATOR + tensors * _A_TENSOR_OF_A_LIST
    if results and not schema.return_type_tensor():
        functions += results * _A_RESULT_OF_A_LIST
        if schema.op in getattr(propagator, "op_single_dim_strategy_funcs", {}):
            functions += results * (_A_SINGLE_DIM_RESULT + tensors * _A_SINGLE_DIM_PAIR)
    return functions


def _uncounted(hook: Hook, cached: Any) -> Any:
    """A function with a cache, which takes no host time, be its result in the cache or not."""

    @functools.wraps(cached)
    def call(*arguments: Any, **options: Any) -> Any:
        if hook.measures_host():
            return cached(*arguments, **options)
        hook.uncounted(1)
        try:
            return cached(*arguments, **options)
        finally:
            hook.uncounted(-1)

    call.cache_clear, call.cache_info = cached.cache_clear, cached.cache_info  # type: ignore[attr-defined]
    return call
