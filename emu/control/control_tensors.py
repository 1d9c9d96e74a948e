"""ControlTensors tensors: small tensors that steer the program are computed for real, at PyTorch's dispatcher.

A function before the CUDA kernel of each operation in `ops` calls that kernel (which allocates the output and
launches, so memory and time are those of a GPU) and then, if all tensors are small, computes the same operation on
CPU twins of the tensors' bytes. An output is known if all inputs were. Otherwise integers and bools get a fixed
value, and a script that reads them is warned; floats are left as they are, and read as 0.

Inputs that have yet to arrive from another rank (a small collective) delay the computation, not the program.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from ..interpreter.hook_library import Hook
from . import ops
from .alias import DeviceMemory, span

if TYPE_CHECKING:
    from torch import Tensor

Kernel = Callable[..., Any]


class ControlTensors:
    """What the kernels of one process share."""

    def __init__(self, hook: Hook, limit_nbytes: int, float_limit_numel: int) -> None:
        import torch

        self.hook = hook
        self.limit_numel = limit_nbytes // 8
        self.float_limit_numel = float_limit_numel
        self.memory = DeviceMemory(hook)
        self.tensor_type = torch.Tensor
        self.integers = {torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64}
        self._waiting: dict[int, Callable[[], None]] = {}
        self._count = 0
        self._submit = hook.action(self._run_waiting)
        self._observe = torch._C._autograd._enable_record_function

    # ---- tensors of a call -----------------------------------------------------------------------------------------
    def small(self, values: Iterable[Any]) -> list[Tensor] | None:
        """The CUDA tensors among a call's arguments or results, lists looked into; None if one is no control tensor."""
        found: list[Tensor] = []
        for value in values:
            if isinstance(value, self.tensor_type):
                if value.numel() > (self.limit_numel if value.dtype in self.integers else self.float_limit_numel):
                    return None
                if value.is_cuda:
                    found.append(value)
            elif isinstance(value, (list, tuple)) and value and not isinstance(value[0], (int, float)):
                inner = self.small(value)
                if inner is None:
                    return None
                found += inner
        return found

    def twins(self, value: Any) -> Any:
        """A call's arguments with every CUDA tensor replaced; to be called aside. Raises NoTwin."""
        if isinstance(value, self.tensor_type):
            if not value.is_cuda:
                return value
            twin = self.memory.twin(value)
            if twin is None:
                raise NoTwin
            return twin
        if isinstance(value, (list, tuple)):
            return [self.twins(item) for item in value]
        if isinstance(value, dict):
            return {name: self.twins(item) for name, item in value.items()}
        return value

    def twin(self, tensor: Tensor) -> Tensor | None:
        return self.aside(lambda: self.memory.twin(tensor))

    def known(self, tensors: Iterable[Tensor]) -> bool:
        return all(self.hook.data_known(*span(tensor)) for tensor in tensors)

    def pending(self, tensors: Iterable[Tensor]) -> bool:
        return any(self.hook.data_pending(*span(tensor)) for tensor in tensors)

    def wait(self, tensors: Iterable[Tensor]) -> None:
        for tensor in tensors:
            self.hook.data_wait(*span(tensor))

    def mark(self, tensors: Iterable[Tensor], *, known: bool) -> None:
        for tensor in tensors:
            (self.hook.data_mark_known if known else self.hook.data_forget)(*span(tensor))

    def unmodelled_read(self, tensor: Tensor) -> None:
        """The program gets to see what nobody computed. Losses are floats, and no surprise; the hook counts both."""
        if not tensor.is_floating_point():
            line = self.hook.line()
            what = str(tensor.dtype).removeprefix("torch.")
            self.hook.warn_once(
                f"read {line}",
                f"{line or 'the script'} reads {what} values that depend on floating-point kernels: these are not "
                "executed, it gets fixed ones",
            )

    # ---- computing -------------------------------------------------------------------------------------------------
    def aside(self, work: Callable[[], Any]) -> Any:
        """Runs `work` unobserved: it is no work of the script's."""
        self._observe(False)
        try:
            return work()
        finally:
            self._observe(True)

    def when_known(self, inputs: list[Tensor], outputs: list[Tensor], compute: Callable[[bool], None]) -> None:
        """`compute(known)` now, or when the inputs have arrived; then the outputs are as known as they were."""
        if not self.pending(inputs) and not self.pending(outputs):
            known = self.known(inputs)
            self.aside(lambda: compute(known))
            self.mark(outputs, known=known)
            return
        self._count += 1
        self._waiting[self._count] = lambda: compute(True)
        reads = [part for tensor in inputs for part in span(tensor)]
        writes = [part for tensor in outputs for part in span(tensor)]
        self._submit(reads, writes, self._count)

    def _run_waiting(self, number: int) -> None:
        self.aside(self._waiting.pop(number))


class NoTwin(Exception):
    """A tensor whose bytes the host cannot see as a CPU tensor."""


def install(hook: Hook, limit_nbytes: int, float_limit_numel: int) -> Any:
    """Puts our functions before torch's CUDA kernels, once, in the forker. They stay as long as the returned object."""
    import torch

    from . import kernels, reads

    control = ControlTensors(hook, limit_nbytes, float_limit_numel)
    make_library: Any = torch.library.Library  # untyped
    library = make_library("aten", "IMPL")

    def before(names: Iterable[str], make: Callable[[ControlTensors, Any, Kernel], Kernel]) -> None:
        for name in names:
            try:
                kernel = torch.library.get_kernel(name, "CUDA")
            except RuntimeError:
                continue  # not in this version of torch, or composed of others
            base, _, overload = name.removeprefix("aten::").partition(".")
            operation = getattr(getattr(torch.ops.aten, base), overload or "default")
            ours = make(control, operation, kernel.call_boxed)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # overriding is the point
                library.impl(operation, ours, "CUDA", with_keyset=True, allow_override=True)

    before(ops.POINTWISE, kernels.pointwise)
    before(ops.SHRINKING, kernels.shrinking)
    before(ops.FILLS, kernels.fill)
    before(ops.COMPARISONS, kernels.comparison)
    before(ops.RANDOM, kernels.random)
    before(("aten::copy_",), reads.copy)
    before(("aten::_foreach_norm.Scalar",), kernels.forget_list)
    before(("aten::_local_scalar_dense",), reads.item)
    before(("aten::nonzero",), reads.nonzero)
    before(("aten::equal",), reads.equal)
    before(ops.UNIQUE, reads.unique)
    return library
