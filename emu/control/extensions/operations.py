"""The function before operations that a library brings: their kernel for CPUs computes what the one for CUDA would.

Recommendation models decide by them: how many rows each rank sends is a sum of lengths that fbgemm has permuted. Values
that are not known are never assumed here: such kernels do not check what they get. Where an operation's kernel counts
what it has found (NMS), known values say how much that is.
"""

from __future__ import annotations

import contextlib
import functools
import threading
import warnings
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from ..computed_op import Computed, ComputedOp, Kernel
from ..control_tensors import KNOWN, ControlTensors
from ..host_views import Place

if TYPE_CHECKING:
    from torch import Tensor

Finding = Callable[[Callable[[], int | None]], contextlib.AbstractContextManager[None]]
"""`finding(found)`: while the block of this context runs, kernels find as many elements as `found()` says; None: that
is not known.
"""


class _Asked(threading.local):
    """The state of a thread that runs such a kernel."""

    on = False
    """True once the kernel that runs has counted what it has found."""


class _KnownOp(ComputedOp):
    def __init__(self, finding: Finding, control: ControlTensors, operation: Any, kernel: Kernel) -> None:
        super().__init__(control, operation, kernel)
        self._finding = finding
        self._asked = _Asked()

    def call(self, keyset: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        self._asked.on = False
        with self._finding(lambda: self._found(args, kwargs)):
            return super().call(keyset, args, kwargs)

    def _found(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> int | None:
        """Returns how long the operation's one result is; None if not all is known that it reads."""
        self._asked.on = True
        control = self._control
        reads = control.small(self.read(args, kwargs))
        if reads is None or control.capturing():
            return None
        control.wait(reads)
        if control.state(map(Place, reads)) != KNOWN:
            return None
        computed = self._values(args, kwargs, KNOWN)
        values = computed.values if computed is not None else []
        return values[0].size(0) if len(values) == 1 and values[0].dim() else None

    def _after(
        self, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any, state: int, marks: int, reads: list[Tensor]
    ) -> None:
        """Computes the results, but for those of a kernel that has counted what it found among unknown values:
        PyTorch's operations make these results, and have said already what is known of them.
        """
        if state == KNOWN or not self._asked.on:
            super()._after(args, kwargs, result, state, marks, reads)

    def _compute(self, cpu_args: list[Any], cpu_kwargs: dict[str, Any], state: int) -> Computed | None:
        return super()._compute(cpu_args, cpu_kwargs, state) if state == KNOWN else None


def extension_op(finding: Finding, control: ControlTensors, operation: Any, kernel: Kernel) -> Kernel:
    op = _KnownOp(finding, control, operation, kernel)

    def call(keyset: Any, *args: Any, **kwargs: Any) -> Any:
        if control.nested:
            return kernel(keyset, *args, **kwargs)
        return op.call(keyset, args, kwargs)

    return call


class Libraries:
    """Notes which operations libraries bring that are loaded from now on."""

    def __init__(self, registered_for: Callable[[str], Iterable[str]]) -> None:
        import torch

        self._brought: set[str] = set()
        self._make: Callable[[ControlTensors, Any, Kernel], Kernel] | None = None
        self._control: ControlTensors | None = None
        self._kept: list[Any] = []
        """The registered functions: they stay registered as long as these objects live."""
        load = torch.ops.load_library

        @functools.wraps(load)
        def loading(path: Any) -> None:
            before = set(registered_for("CUDA"))
            load(path)
            self._brought |= (set(registered_for("CUDA")) - before) & set(registered_for("CPU"))
            self._register()

        torch.ops.load_library = loading

    def compute(self, control: ControlTensors, finding: Finding) -> None:
        """Makes these operations, and those of libraries that are loaded later, be computed."""
        self._control = control
        self._make = functools.partial(extension_op, finding)
        self._register()

    def _register(self) -> None:
        if self._control is None or self._make is None:
            return
        brought, self._brought = sorted(self._brought), set()
        self._kept.extend(register(self._control, name, self._make) for name in brought)


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
