"""Puts our functions before torch's CUDA kernels, in PyTorch's dispatcher."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from ..contract.routing_policy import RoutingPolicy
from ..interpreter.hook_library import Hook
from . import device_ops, host_reads, op_lists
from .computed_op import Kernel
from .control_tensors import ControlTensors
from .routing import Routing

Maker = Callable[[ControlTensors, Any, Kernel], Kernel]
"""`maker(control, operation, cuda_kernel)` returns the function that is called in the kernel's place."""
_MAKERS: tuple[tuple[Iterable[str], Maker], ...] = (
    (op_lists.POINTWISE, device_ops.pointwise),
    (op_lists.SHRINKING, device_ops.shrinking),
    (op_lists.FILLS, device_ops.fill),
    (op_lists.COMPARISONS, device_ops.comparison),
    (op_lists.RANDOM, device_ops.random),
    (op_lists.LISTS_OF_FLOATS, device_ops.list_of_floats),
    (op_lists.UNIQUE, host_reads.unique),
    (("aten::copy_",), host_reads.copy),
    (("aten::_local_scalar_dense",), host_reads.item),
    (("aten::nonzero",), host_reads.nonzero),
    (("aten::equal",), host_reads.equal),
)


class Installed(NamedTuple):
    """What `install` made."""

    library: Any
    """The functions stay registered as long as this object lives."""
    routing: Routing


def install(hook: Hook, limit_nbytes: int, float_limit_numel: int, policy: RoutingPolicy) -> Installed:
    """In the forker, once: registers the functions.

    Integer and bool tensors are control tensors up to `limit_nbytes` (counted as 8 bytes an element), floating-point
    ones up to `float_limit_numel` elements.
    """
    import torch

    control = ControlTensors(hook, limit_nbytes, float_limit_numel)
    routing = Routing(control, policy)
    make_library: Any = torch.library.Library  # untyped
    library = make_library("aten", "IMPL")
    for names, make in _MAKERS:
        for name in names:
            try:
                kernel = torch.library.get_kernel(name, "CUDA")
            except RuntimeError:
                continue  # this version of torch lacks the operation, or composes it of others
            base, _, overload = name.removeprefix("aten::").partition(".")
            operation = getattr(getattr(torch.ops.aten, base), overload or "default")
            ours = routing.before(operation, make(control, operation, kernel.call_boxed))
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # torch warns of overrides
                library.impl(operation, ours, "CUDA", with_keyset=True, allow_override=True)
    return Installed(library, routing)
