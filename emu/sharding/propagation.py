"""Propagating shardings: how DTensor finds the sharding of an operator's result when it meets new arguments.

It runs thousands of Python functions, over a million for an optimizer with PyTorch 2.15. How many depends on what the
process has propagated before, and on whether another rank has told the result. So they are not counted: a propagation
takes a host time that follows from its arguments, whoever computes it. The plan of a redistribution, which it makes to
compare costs and which is kept for real redistributions, takes none.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from ..interpreter.hook_library import Hook
from ..private.changes import Names, changes
from .results import Results, follows_from_name

_CODE_UNITS = 80
"""The mean length of the functions. All numbers below are such functions, run a moment before: they are PyTorch's, and
what a function takes is the host's.
"""
_AN_OPERATOR = 3_500
_A_TENSOR_OF_A_LIST = 400
_A_RESULT_OF_A_LIST = 100
_A_SINGLE_DIM_RESULT = 1_250
"""Functions that a result of a strategy takes that DTensor expands to all dimensions of the mesh; from PyTorch 2.15 on
for most lists.
"""
_A_SINGLE_DIM_PAIR = 8
"""Functions that each tensor takes for each such result, as all tensors are looked at for each result."""


def install(hook: Hook, results: Results | None) -> None:
    """Makes a propagation take this host time. Called once, in the forker, when torch is imported. `results`: the
    results that ranks share; None: they share none.
    """
    if results is not None and changes.usable("shared shardings") is None:
        results = None
    changes.install("sharding propagation", functools.partial(_change, hook, results))


def _change(hook: Hook, results: Results | None, names: Names) -> None:
    tracing: Callable[[], bool] = names.get("_are_we_tracing")
    names.change("propagate_op_sharding_non_cached", functools.partial(_propagating, hook, results, tracing))
    names.change("sharding_propagator.propagate_op_sharding", _cached_again)
    names.change("_gen_transform_infos", functools.partial(_uncounted, hook))


def _propagating(
    hook: Hook, results: Results | None, tracing: Callable[[], bool], original: Callable[[Any, Any], Any]
) -> Callable[[Any, Any], Any]:
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

    return propagate


def _cached_again(cached: Any) -> Any:
    """Puts a new cache around the method as it is now: the cache that is there has kept the method as it was."""
    from torch.distributed.tensor import DTensor

    return type(cached)(DTensor._op_dispatcher.sharding_propagator.propagate_op_sharding_non_cached)


def functions_for(propagator: Any, schema: Any) -> int:
    """Returns how many Python functions the propagation counts as. Measured with PyTorch 2.11 and 2.15
    (docs/host.md).
    """
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
    """Wraps a function with a cache, so that it takes no host time, be its result in the cache or not."""

    @functools.wraps(cached)
    def call(*arguments: Any, **options: Any) -> Any:
        if hook.measures_host():
            return cached(*arguments, **options)
        hook.uncounted(1)
        try:
            return cached(*arguments, **options)
        finally:
            hook.uncounted(-1)

    for name in ("cache_clear", "cache_info"):
        if hasattr(cached, name):
            setattr(call, name, getattr(cached, name))
    return call
