"""What all functions before torch's CUDA kernels share: which tensors are control tensors, and what is known of them.

A control tensor is small: its elements are at most `limit_numel` (integers and bools) or `float_limit_numel` (floating
point). The hook library keeps for every byte of device memory whether it is *known* (something modelled wrote it) or
*pending* (it has yet to arrive from another rank, in a small collective).
"""

from __future__ import annotations

import weakref
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from ..interpreter.hook_library import Hook
from .captured import CapturedOps
from .host_views import HostViews, NoHostView, span

if TYPE_CHECKING:
    from torch import Tensor


class ControlTensors:
    """The control tensors of one process."""

    def __init__(self, hook: Hook, limit_nbytes: int, float_limit_numel: int) -> None:
        import torch

        self.hook = hook
        self.limit_numel = limit_nbytes // 8
        self.float_limit_numel = float_limit_numel
        self.tensor_type = torch.Tensor
        self._views = HostViews(hook)
        self.integers = {torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64}
        self._deferred: dict[int, Callable[[], None]] = {}
        self._last_deferred = 0
        self._submit = hook.action(self._run_deferred)
        self._captured = CapturedOps(hook, self.unrecorded)
        self._enable_record_function = torch._C._autograd._enable_record_function
        self._any_size: OrderedDict[int, None] = OrderedDict()
        self.unused_choices: dict[int, tuple[weakref.ref[Tensor], Callable[[], None]]] = {}
        """By the address of their memory: indices that the routing policy chose; what to call when they are used."""

    # ---- tensors of a call -----------------------------------------------------------------------------------------
    def small(self, values: Iterable[Any]) -> list[Tensor] | None:
        """The CUDA tensors among a call's arguments or results, and in lists of them; None if a tensor is larger than
        a control tensor.
        """
        found: list[Tensor] = []
        for value in values:
            if isinstance(value, self.tensor_type):
                limit = self.limit_numel if value.dtype in self.integers else self.float_limit_numel
                if value.numel() > limit and not (
                    self._any_size and value.untyped_storage().data_ptr() in self._any_size
                ):
                    return None
                if value.is_cuda:
                    found.append(value)
            elif isinstance(value, (list, tuple)) and value and not isinstance(value[0], (int, float)):
                inner = self.small(value)
                if inner is None:
                    return None
                found += inner
        return found

    def computed_at_any_size(self, tensor: Tensor) -> None:
        """Operations that read the tensor's memory are computed although it is not small."""
        self._any_size[tensor.untyped_storage().data_ptr()] = None
        if len(self._any_size) > 64:
            self._any_size.popitem(last=False)

    def host_view(self, tensor: Tensor) -> Tensor | None:
        """The CPU tensor over the same bytes, None if there is none. Call it within `unrecorded`."""
        return self._views.view(tensor)

    def with_host_views(self, value: Any) -> Any:
        """A call's arguments with every CUDA tensor replaced by its host view. Raises NoHostView. Call it within
        `unrecorded`.
        """
        if isinstance(value, self.tensor_type):
            if not value.is_cuda:
                return value
            view = self._views.view(value)
            if view is None:
                raise NoHostView
            return view
        if isinstance(value, (list, tuple)):
            return [self.with_host_views(item) for item in value]
        if isinstance(value, dict):
            return {name: self.with_host_views(item) for name, item in value.items()}
        return value

    # ---- what is known of them -------------------------------------------------------------------------------------
    def known(self, tensors: Iterable[Tensor]) -> bool:
        """Are all of them known?"""
        return all(self.hook.data_known(*span(tensor)) for tensor in tensors)

    def pending(self, tensors: Iterable[Tensor]) -> bool:
        """Is one of them pending?"""
        return any(self.hook.data_pending(*span(tensor)) for tensor in tensors)

    def wait(self, tensors: Iterable[Tensor]) -> None:
        """Waits until none of them is pending."""
        for tensor in tensors:
            self.hook.data_wait(*span(tensor))

    def mark(self, tensors: Iterable[Tensor], *, known: bool) -> None:
        """From now on they are known, or unknown; earlier operations that are deferred find them as they were."""
        for tensor in tensors:
            where = span(tensor)
            if known:
                self.hook.data_mark_known(*where)
            elif self.hook.data_in_use(*where):
                start, nbytes = self.hook.device_range()  # what is computed from its end is unknown: no tensor is there
                self._defer([start + nbytes - 8, 8], where, lambda: None)
            else:
                self.hook.data_forget(*where)

    def warn_of_unknown_read(self, tensor: Tensor) -> None:
        """The program reads values that are unknown. Integers and bools are worth a warning; floats are not, because
        a training script prints its loss. The hook library counts both.
        """
        if not tensor.is_floating_point():
            line = self.hook.line()
            dtype = str(tensor.dtype).removeprefix("torch.")
            self.hook.warn_once(
                f"read {line}",
                f"{line or 'the script'} reads {dtype} values that depend on floating-point kernels, which are not "
                "executed: the values are placeholders",
            )

    def use(self, tensors: Iterable[Tensor]) -> None:
        """They are read by the program or by an operation that is computed."""
        for tensor in tensors if self.unused_choices else ():
            owner, report = self.unused_choices.pop(tensor.untyped_storage().data_ptr(), (None, None))
            if owner is not None and report is not None and owner() is not None:
                report()

    # ---- computing -------------------------------------------------------------------------------------------------
    def unrecorded(self, work: Callable[[], Any]) -> Any:
        """Runs `work` without announcing its ops to profilers and NVTX: the script did not call them."""
        self._enable_record_function(False)
        try:
            return work()
        finally:
            self._enable_record_function(True)

    def compute_when_arrived(
        self, inputs: list[Tensor], outputs: list[Tensor], compute: Callable[[bool], None]
    ) -> None:
        """Calls `compute(known)` now, or when no input is pending and no earlier operation is to read or write an
        output any more. `known`: all inputs are known; then the outputs are known afterwards, otherwise unknown. While
        a CUDA graph is captured: at each of its launches.
        """
        if self._captured.take(inputs, outputs, compute):
            return
        if not self.pending(inputs) and not any(self.hook.data_in_use(*span(output)) for output in outputs):
            known = self.known(inputs)
            self.unrecorded(lambda: compute(known))
            self.mark(outputs, known=known)
            return
        # The deferred call holds addresses, not the inputs: these must not live longer than on a GPU.
        reads = [span(tensor) for tensor in inputs]
        writes = [span(tensor) for tensor in outputs]
        self._defer(
            [part for read in reads for part in read],
            [part for write in writes for part in write],
            lambda: compute(all(self.hook.data_known(*read) for read in reads)),
        )

    def _defer(self, reads: Sequence[int], writes: Sequence[int], work: Callable[[], None]) -> None:
        self._last_deferred += 1
        self._deferred[self._last_deferred] = work
        self._submit(reads, writes, self._last_deferred)

    def _run_deferred(self, number: int) -> None:
        """Called by the hook library, which then marks the outputs itself."""
        self.unrecorded(self._deferred.pop(number))
