"""The function before operations that a library brings: their kernel for CPUs computes what the one for CUDA would.

Recommendation models decide by them: how many rows each rank sends is a sum of lengths that fbgemm has permuted. Values
that are not known are never assumed here: such kernels do not check what they get.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Iterable
from typing import Any

from ..computed_op import ComputedOp, Kernel
from ..control_tensors import KNOWN, ControlTensors


class _KnownOp(ComputedOp):
    def _compute(self, cpu_args: list[Any], cpu_kwargs: dict[str, Any], state: int) -> list[Any] | None:
        return super()._compute(cpu_args, cpu_kwargs, state) if state == KNOWN else None


def extension_op(control: ControlTensors, operation: Any, kernel: Kernel) -> Kernel:
    op = _KnownOp(control, operation, kernel)

    def call(keyset: Any, *args: Any, **kwargs: Any) -> Any:
        if control.nested:
            return kernel(keyset, *args, **kwargs)
        return op.call(keyset, args, kwargs)

    return call


def follow(control: ControlTensors, registered_for: Callable[[str], Iterable[str]]) -> None:
    """From now on, operations of libraries that are loaded are computed. In the forker, once."""
    import torch

    load = torch.ops.load_library
    libraries: list[Any] = []  # functions stay registered as long as these live

    @functools.wraps(load)
    def loading(path: Any) -> None:
        before = set(registered_for("CUDA"))
        load(path)
        brought = (set(registered_for("CUDA")) - before) & set(registered_for("CPU"))
        libraries.extend(register(control, name, extension_op) for name in sorted(brought))

    torch.ops.load_library = loading


def register(control: ControlTensors, name: str, make: Callable[[ControlTensors, Any, Kernel], Kernel]) -> Any:
    """Puts what `make` makes of an operation's CUDA kernel in its place, as long as the result lives."""
    import torch

    space, _, rest = name.partition("::")
    base, _, overload = rest.partition(".")
    operation = getattr(getattr(getattr(torch.ops, space), base), overload or "default")
    make_library: Any = torch.library.Library  # untyped
    library = make_library(space, "IMPL")
    kernel = torch.library.get_kernel(name, "CUDA")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch warns of overrides
        ours = make(control, operation, kernel.call_boxed)
        library.impl(operation, ours, "CUDA", with_keyset=True, allow_override=True)
    return library
