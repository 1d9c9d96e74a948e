"""Kernels that compute control tensors beside the real one. Each maker returns `call(keyset, *args, **kwargs)`."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from .control_tensors import ControlTensors, Kernel, NoTwin

if TYPE_CHECKING:
    from torch import Tensor

Unknown = Callable[[list["Tensor"]], None]


def tensors_of(result: Any) -> tuple[Any, ...]:
    return tuple(result) if isinstance(result, (tuple, list)) else (result,)


def written_only(operation: Any) -> tuple[str, ...]:
    """Names of the arguments that are the output (`out=` and its kin)."""
    arguments = operation._schema.arguments
    return tuple(a.name for a in arguments if a.kwarg_only and a.alias_info is not None and a.alias_info.is_write)


def _blank(value: int) -> Unknown:
    def blank(outputs: list[Tensor]) -> None:
        for output in outputs:
            if not output.is_floating_point():
                output.fill_(value)

    return blank


_zeros, _ones = _blank(0), _blank(1)


class Numbers:
    """Python numbers where an operation wants tensors: the dispatcher unwraps them for us, kernels want them wrapped.

    Zero-dimensional tensors of the default dtypes promote types as the numbers did.
    """

    def __init__(self, control: ControlTensors, operation: Any) -> None:
        import torch

        self._torch = torch
        self._aside = control.aside
        self._places = tuple(i for i, a in enumerate(operation._schema.arguments) if str(a.type) == "Tensor")
        self._wrapped: dict[tuple[type, float, bool], Tensor] = {}

    def wrap(self, args: tuple[Any, ...]) -> tuple[Any, ...]:
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
            tensor = self._aside(lambda: torch.tensor(value, dtype=torch.float64 if double else None, device="cpu"))
            self._wrapped[kind, value, double] = tensor
        return tensor


_NUMBERS = frozenset((int, float, bool))


class Beside:
    """One operation: after the real kernel, the same on the twins."""

    def __init__(self, control: ControlTensors, operation: Any, kernel: Kernel, unknown: Unknown = _zeros) -> None:
        self.control = control
        self.operation = operation
        self.kernel = kernel
        self.unknown = unknown
        self.mutable: bool = operation._schema.is_mutable
        self.outputs_by_name = written_only(operation)

    def call(self, keyset: Any, args: tuple[Any, ...], kwargs: dict[str, Any], *, reads_self: bool = True) -> Any:
        control = self.control
        inputs = control.small(args) if reads_self else control.small(args[1:])
        named = [value for name, value in kwargs.items() if name not in self.outputs_by_name]
        more = control.small(named) if named else []
        result = self.kernel(keyset, *args, **kwargs)
        outputs = control.small(tensors_of(result))
        if not outputs:
            return result
        try:
            if inputs is None or more is None:
                raise NoTwin
            compute = self._on_twins(args, kwargs, outputs)
        except NoTwin:
            self.give_up(outputs)
            return result
        control.when_known(inputs + more, outputs, compute)
        return result

    def _on_twins(self, args: tuple[Any, ...], kwargs: dict[str, Any], outputs: list[Tensor]) -> Callable[[bool], None]:
        control, operation = self.control, self.operation
        cpu_args, cpu_kwargs, cpu_outputs = control.aside(lambda: control.twins([args, kwargs, outputs]))
        if "device" in cpu_kwargs:
            cpu_kwargs["device"] = "cpu"

        def compute(known: bool) -> None:
            if not known:
                self.unknown(cpu_outputs)
            elif self.mutable:
                operation(*cpu_args, **cpu_kwargs)
            else:
                for target, value in zip(cpu_outputs, tensors_of(operation(*cpu_args, **cpu_kwargs)), strict=True):
                    target.copy_(value)

        return compute

    def give_up(self, results: Iterable[Any]) -> None:
        """Large inputs, or memory without twins: the outputs are unknown."""
        control = self.control
        outputs = control.small(results)
        if not outputs:
            return

        def compute(known: bool) -> None:
            twins = [twin for twin in map(control.memory.twin, outputs) if twin is not None]
            self.unknown(twins)

        if all(output.is_floating_point() for output in outputs):
            control.mark(outputs, known=False)
        else:
            control.when_known([], outputs, compute)
            control.mark(outputs, known=False)


def pointwise(control: ControlTensors, operation: Any, kernel: Kernel) -> Kernel:
    """Outputs are at least as large as the first tensor: most calls of a training step are told by its size."""
    beside, tensor_type, limit = Beside(control, operation, kernel), control.tensor_type, control.limit_numel
    numbers = Numbers(control, operation)

    def call(keyset: Any, *args: Any, **kwargs: Any) -> Any:
        first = args[0]
        if type(first) is not tensor_type or type(args[-1]) is not tensor_type:
            args = numbers.wrap(args)
        if isinstance(first, tensor_type) and first.numel() > limit:
            return kernel(keyset, *args, **kwargs)
        return beside.call(keyset, args, kwargs)

    return call


def shrinking(control: ControlTensors, operation: Any, kernel: Kernel) -> Kernel:
    # Of what nobody computed nothing is wrong: no element is NaN, all are finite.
    beside = Beside(control, operation, kernel, _ones if operation._schema.name == "aten::all" else _zeros)
    numbers, tensor_type, limit = Numbers(control, operation), control.tensor_type, control.limit_numel
    forget = control.hook.data_forget

    def call(keyset: Any, *args: Any, **kwargs: Any) -> Any:
        first = args[0]
        if type(first) is tensor_type and first.numel() > limit:
            result = kernel(keyset, *args, **kwargs)
            if type(result) is tensor_type and result.is_floating_point():
                if (numel := result.numel()) <= limit and result.is_cuda:
                    forget(result.data_ptr(), numel * result.element_size())
                return result
            beside.give_up(tensors_of(result))
            return result
        return beside.call(keyset, numbers.wrap(args), kwargs)

    return call


def fill(control: ControlTensors, operation: Any, kernel: Kernel) -> Kernel:
    beside, tensor_type, limit = Beside(control, operation, kernel), control.tensor_type, control.limit_numel
    in_place = not beside.outputs_by_name and beside.mutable

    def call(keyset: Any, *args: Any, **kwargs: Any) -> Any:
        first = args[0]
        if isinstance(first, tensor_type) and first.numel() > limit:
            return kernel(keyset, *args, **kwargs)
        return beside.call(keyset, args, kwargs, reads_self=not in_place)

    return call


def comparison(control: ControlTensors, operation: Any, kernel: Kernel) -> Kernel:
    """Floats that nobody computed are finite numbers, and compare as 0."""
    beside, tensor_type, limit = Beside(control, operation, kernel), control.tensor_type, control.limit_numel

    def call(keyset: Any, *args: Any, **kwargs: Any) -> Any:
        first = args[0]
        if not isinstance(first, tensor_type) or first.numel() > limit or not _has_float(args, tensor_type):
            return pointwise_call(keyset, *args, **kwargs)
        tells_finite = _tells_finite(args)
        args = numbers.wrap(args)
        inputs = control.small(args)
        if inputs is None or control.pending(inputs) or control.known(inputs):
            return beside.call(keyset, args, kwargs)
        result = kernel(keyset, *args, **kwargs)
        outputs = control.small(tensors_of(result))
        if outputs and not control.pending(outputs):
            control.aside(lambda: compare_zeros(args, outputs))
            control.mark(outputs, known=tells_finite)
        return result

    def compare_zeros(args: tuple[Any, ...], outputs: Iterable[Tensor]) -> None:
        zeros = [
            value.new_zeros(value.shape, device="cpu") if isinstance(value, tensor_type) else value for value in args
        ]
        for output in outputs:
            twin = control.memory.twin(output)
            if twin is not None:
                if beside.outputs_by_name:
                    operation(*zeros, out=twin)
                else:
                    twin.copy_(operation(*zeros))

    pointwise_call, numbers = pointwise(control, operation, kernel), Numbers(control, operation)
    return call


def _has_float(args: tuple[Any, ...], tensor_type: type[Tensor]) -> bool:
    return any(isinstance(value, tensor_type) and value.is_floating_point() for value in args)


def _tells_finite(args: tuple[Any, ...]) -> bool:
    """isnan(x), x != x, abs(x) == inf: questions whose answer does not depend on the number."""
    if len(args) < 2 or args[0] is args[1]:
        return True
    other = args[1]
    return isinstance(other, float) and not math.isfinite(other)


def random(control: ControlTensors, operation: Any, kernel: Kernel) -> Kernel:
    """Integers drawn on the device: not what a GPU would draw, but of the range asked for, the same in every run."""
    import torch

    beside, generators = Beside(control, operation, kernel), list[Any]()

    def call(keyset: Any, *args: Any, **kwargs: Any) -> Any:
        result = kernel(keyset, *args, **kwargs)
        if result.is_floating_point() or (outputs := control.small((result,))) is None:
            return result
        if not generators:
            generators.append(torch.Generator().manual_seed(torch.initial_seed() % 2**63))
        options = {**kwargs, "generator": generators[0]}
        if beside.outputs_by_name:
            args = tuple(value for value in args if not isinstance(value, torch.Generator))
        try:
            compute = beside._on_twins(args, options, outputs)
        except NoTwin:
            return result
        control.when_known([], outputs, compute)
        return result

    return call


def forget_list(control: ControlTensors, operation: Any, kernel: Kernel) -> Kernel:
    """A list of results in one allocation, of floats that are not computed."""

    def call(keyset: Any, *args: Any, **kwargs: Any) -> Any:
        results = kernel(keyset, *args, **kwargs)
        if results:
            first, last = results[0].data_ptr(), results[-1].data_ptr()
            if 0 <= last - first <= len(results) * 16:
                control.hook.data_forget(first, last - first + results[-1].element_size())
            else:
                control.mark(results, known=False)
        return results

    return call
