"""One ATen operation that is computed on the CPU after its CUDA kernel was called.

The CUDA kernel allocates the outputs and launches, so memory and time are those of a GPU. Then, if all tensors are
small, the same operation runs on host views of their bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from .control_tensors import ControlTensors
from .equivalents import EQUIVALENTS
from .host_views import NoHostView

if TYPE_CHECKING:
    from torch import Tensor

Kernel = Callable[..., Any]
"""`kernel(keyset, *args, **kwargs)`, as the dispatcher calls it."""
Placeholders = Callable[[list["Tensor"]], None]
"""Writes to host views of outputs whose values are unknown."""

_NUMBERS = frozenset((int, float, bool))


def as_tuple(result: Any) -> tuple[Any, ...]:
    """The results of an operation that returns one value or several."""
    return tuple(result) if isinstance(result, (tuple, list)) else (result,)


def _integers_become(value: int) -> Placeholders:
    """Floating-point outputs stay as they are: memory that nothing has written reads as 0."""

    def fill(outputs: list[Tensor]) -> None:
        for output in outputs:
            if not output.is_floating_point():
                output.fill_(value)

    return fill


ZEROS, ONES = _integers_become(0), _integers_become(1)


class ComputedOp:
    """Calls the CUDA kernel of one operation, then computes the operation on host views."""

    def __init__(
        self, control: ControlTensors, operation: Any, kernel: Kernel, placeholders: Placeholders = ZEROS
    ) -> None:
        self._control = control
        self._operation = EQUIVALENTS.get(operation._schema.name, operation)
        self._kernel = kernel
        self._placeholders = placeholders
        self.mutable: bool = operation._schema.is_mutable
        """Does it write to one of its arguments?"""
        self.out_arguments = tuple(
            argument.name
            for argument in operation._schema.arguments
            if argument.kwarg_only and argument.alias_info is not None and argument.alias_info.is_write
        )
        """Names of keyword arguments that are only written to (`out` and the like)."""

    def call(self, keyset: Any, args: tuple[Any, ...], kwargs: dict[str, Any], *, reads_first: bool = True) -> Any:
        """Returns the kernel's results. `reads_first`: does the operation read its first argument?"""
        control = self._control
        inputs = control.small(args) if reads_first else control.small(args[1:])
        named = [value for name, value in kwargs.items() if name not in self.out_arguments]
        more = control.small(named) if named else []
        result = self._kernel(keyset, *args, **kwargs)
        outputs = control.small(as_tuple(result))
        if not outputs:
            return result
        try:
            if inputs is None or more is None:
                raise NoHostView
            compute = self.on_host_views(args, kwargs, outputs)
        except NoHostView:
            self.give_up(outputs)
            return result
        control.use(inputs + more)
        control.compute_when_arrived(inputs + more, outputs, compute)
        return result

    def on_host_views(
        self, args: tuple[Any, ...], kwargs: dict[str, Any], outputs: list[Tensor]
    ) -> Callable[[bool], None]:
        """`compute(known)`, which writes the outputs, or placeholders if the inputs are not known. Raises
        NoHostView.
        """
        control, operation = self._control, self._operation
        cpu_args, cpu_kwargs, cpu_outputs = control.unrecorded(lambda: control.with_host_views([args, kwargs, outputs]))
        if "device" in cpu_kwargs:
            cpu_kwargs["device"] = "cpu"

        def compute(known: bool) -> None:
            if not known:
                self._placeholders(cpu_outputs)
            elif self.mutable:
                operation(*cpu_args, **cpu_kwargs)
            else:
                for target, value in zip(cpu_outputs, as_tuple(operation(*cpu_args, **cpu_kwargs)), strict=True):
                    target.copy_(value)

        return compute

    def give_up(self, results: Iterable[Any]) -> None:
        """The operation cannot be computed (large inputs, or no host views): its small outputs are unknown."""
        control = self._control
        outputs = control.small(results)
        if not outputs:
            return

        def compute(known: bool) -> None:
            self._placeholders([view for view in map(control.host_view, outputs) if view is not None])

        if all(output.is_floating_point() for output in outputs):
            control.mark(outputs, known=False)
        else:
            control.compute_when_arrived([], outputs, compute)
            control.mark(outputs, known=False)


class NumberWrapper:
    """Makes tensors of the Python numbers among a call's arguments where the operation's schema has tensors.

    The dispatcher passes such numbers unwrapped; CUDA kernels need tensors. Zero-dimensional tensors of the default
    dtypes promote types as the numbers would.
    """

    def __init__(self, control: ControlTensors, operation: Any) -> None:
        import torch

        self._torch = torch
        self._unrecorded = control.unrecorded
        self._places = tuple(i for i, a in enumerate(operation._schema.arguments) if str(a.type) == "Tensor")
        self._wrapped: dict[tuple[type, float, bool], Tensor] = {}

    def wrap(self, args: tuple[Any, ...]) -> tuple[Any, ...]:
        """The arguments with tensors in place of these numbers."""
        for place in self._places:
            if place < len(args) and type(args[place]) in _NUMBERS:
                args = (*args[:place], self._tensor(args[place], args), *args[place + 1 :])
        return args

    def _tensor(self, value: float, args: tuple[Any, ...]) -> Tensor:
        torch, kind = self._torch, type(value)
        double = kind is float and any(
            isinstance(other, torch.Tensor) and other.dtype is torch.float64 for other in args
        )
        tensor = self._wrapped.get((kind, value, double))
        if tensor is None:
            if len(self._wrapped) >= 256:
                self._wrapped.clear()
            dtype = torch.float64 if double else None
            tensor = self._unrecorded(lambda: torch.tensor(value, dtype=dtype, device="cpu"))
            self._wrapped[kind, value, double] = tensor
        return tensor
