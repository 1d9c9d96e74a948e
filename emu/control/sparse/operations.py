"""The function before the CUDA kernels of operations on sparse tensors, COO and compressed (CSR and the like).

If all that an operation gets is small and known, it is computed on the CPU, and its results are made of what the CPU
says: how many elements they have depends on values. Otherwise what the kernel writes is unknown. The kernels are called
for their time, and for errors in the arguments.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from ...private.access import schema_of
from ..computed_op import Kernel, NumberWrapper
from ..control_tensors import KNOWN, ControlTensors
from ..host_views import NoHostView, Place
from .parts import cuda_tensors, is_sparse, made_of, named_parts, parts_of

if TYPE_CHECKING:
    from torch import Tensor

KEYS = ("SparseCUDA", "SparseCsrCUDA")
"""The keys of PyTorch's dispatcher for sparse tensors on a GPU."""

LEFT_ALONE = frozenset(
    f"aten::{name}"
    for name in [
        *("_coalesced_", "_sparse_coo_tensor_with_dims", "_sparse_coo_tensor_with_dims_and_tensors"),
        *("copy_sparse_to_sparse_", "empty.memory_format", "empty_like", "resize_", "resize_as_sparse_"),
        *("sparse_resize_", "sparse_resize_and_clear_", "view_as_complex", "view_as_real"),
    ]
)
"""Names of operations that take memory, make views or copy parts by operations of dense tensors."""


def writes_or_makes(operation: Any) -> bool:
    """Tells whether an operation writes to a tensor or returns a new one. Others ask for parts or for numbers."""
    returns = [r for r in schema_of(operation).returns if "Tensor" in str(r.type)]
    return any(r.alias_info is None or r.alias_info.is_write for r in returns)


class SparseOp:
    """The function before one operation's kernel."""

    def __init__(self, control: ControlTensors, operation: Any, kernel: Kernel) -> None:
        self._control, self._operation, self._kernel = control, operation, kernel
        self._numbers = NumberWrapper(control, operation)
        arguments = schema_of(operation).arguments
        self._written = {a.name: i for i, a in enumerate(arguments) if a.alias_info and a.alias_info.is_write}

    def call(self, keyset: Any, *args: Any, **kwargs: Any) -> Any:
        """Returns the kernel's results, or others in their place."""
        control, args = self._control, self._numbers.wrap(args)
        if control.nested:
            return self._kernel(keyset, *args, **kwargs)
        values = None if control.capturing() else self._values(args, kwargs)
        result = self._kernel_alone(keyset, args, kwargs, computed=values is not None)
        written = [kwargs[name] if name in kwargs else args[i] for name, i in self._written.items()]
        if values is None:
            control.overwrite(self._parts([*written, result]))
            return result
        for tensor, value in zip(written, values, strict=False):
            self._assign(tensor, value)
        return written[0] if self._written else self._results(result, values)

    def _kernel_alone(self, keyset: Any, args: Any, kwargs: dict[str, Any], *, computed: bool) -> Any:
        """Calls the kernel. Operations that it calls are not computed, and what it reads does not matter if the result
        is `computed`.
        """
        control = self._control
        control.nested = True
        control.hook.reads_discarded(computed, -1)
        try:
            return self._kernel(keyset, *args, **kwargs)
        finally:
            control.hook.reads_discarded(False, -1)
            control.nested = False

    def _parts(self, values: Iterable[Any]) -> list[Tensor]:
        """Returns the dense tensors of all CUDA tensors among these values."""
        control = self._control
        tensors = cuda_tensors(values, control.tensor_type)
        found: list[Tensor] = control.unrecorded(lambda: [part for tensor in tensors for part in parts_of(tensor)])
        return found

    # ---- values ----------------------------------------------------------------------------------------------------
    def _values(self, args: Any, kwargs: dict[str, Any]) -> list[Any] | None:
        """Returns the values that the operation writes and returns, on the CPU; None if it is not computed."""
        control = self._control
        parts = self._parts((*args, *kwargs.values()))
        if not all(map(control.is_small, parts)):
            return None
        control.use(parts)
        control.wait(parts)
        if control.state(map(Place, parts)) != KNOWN:
            return None

        def compute() -> list[Any] | None:
            try:
                cpu_args = [self._on_host(value) for value in args]
                cpu_kwargs = {name: self._on_host(value) for name, value in kwargs.items()}
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    result = self._operation(*cpu_args, **cpu_kwargs)
            except (NoHostView, NotImplementedError, RuntimeError):
                return None
            if self._written:
                return [cpu_kwargs[name] if name in cpu_kwargs else cpu_args[i] for name, i in self._written.items()]
            return list(result) if isinstance(result, (tuple, list)) else [result]

        found: list[Any] | None = control.unrecorded(compute)
        return found

    def _on_host(self, value: Any) -> Any:
        """Returns the value with tensors of the CPU in place of its tensors: copies, as the operation may write to
        them.
        """
        import torch

        control = self._control
        if isinstance(value, control.tensor_type):
            if not value.is_cuda:
                return value
            if not is_sparse(value):
                return control.host_view(value).clone()
            parts = {name: control.host_view(part).clone() for name, part in named_parts(value).items()}
            return made_of(parts, value, "cpu")
        if isinstance(value, (list, tuple)):
            return [self._on_host(item) for item in value]
        return torch.device("cpu") if isinstance(value, torch.device) else value

    def _results(self, result: Any, values: list[Any]) -> Any:
        if not isinstance(result, (tuple, list)):
            return self._result(result, values[0])
        return tuple(self._result(one, value) for one, value in zip(result, values, strict=True))

    def _result(self, result: Any, value: Any) -> Any:
        if not isinstance(result, self._control.tensor_type) or not result.is_cuda:
            return result
        if not is_sparse(result):
            self._store(result, value)
            return result
        return self._to_device(value, result.device)

    def _to_device(self, value: Tensor, device: Any) -> Tensor:
        """Returns the sparse tensor on the device."""
        import torch

        def make() -> Tensor:
            parts: dict[str, Tensor] = {}
            for name, part in named_parts(value).items():
                parts[name] = torch.empty(part.shape, dtype=part.dtype, device=device)
                self._store(parts[name], part)
            return made_of(parts, value, device)

        made: Tensor = self._control.unrecorded(make)
        return made

    def _store(self, tensor: Tensor, value: Tensor) -> None:
        control = self._control
        view = control.unrecorded(lambda: control.find_view(tensor))
        if view is None or view.shape != value.shape:
            control.overwrite([tensor])
            return
        place = Place(tensor)

        def write() -> None:
            view.copy_(value)
            control.mark(place, KNOWN)

        control.perform(tensor.device.index, [], [place], write, later=control.in_use([place]))

    def _assign(self, tensor: Tensor, value: Tensor) -> None:
        """Gives `tensor`, which the operation writes to, this value."""
        import torch

        if not is_sparse(tensor):
            self._store(tensor, value)
        elif tensor.layout == torch.sparse_coo:
            made = self._to_device(value, tensor.device)
            self._control.unrecorded(lambda: torch.ops.aten.copy_sparse_to_sparse_(tensor, made))
        else:
            for part, new in zip(self._parts([tensor]), parts_of(value), strict=True):
                self._store(part, new)


def sparse_op(control: ControlTensors, operation: Any, kernel: Kernel) -> Kernel:
    """Makes the function that computes the operation if all is small and known."""
    return SparseOp(control, operation, kernel).call
