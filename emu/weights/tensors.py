"""Decides which tensors can share memory, and does what ranks do in place of computing what another rank has
computed.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ..interpreter.hook_library import Hook
from ..keeping.client import Client
from .pages import Block
from .store import LEAST_NBYTES, Store


def block_of(tensor: Any) -> Block:
    """Returns the memory of a contiguous tensor."""
    return Block(tensor.data_ptr(), tensor.numel() * tensor.element_size())


SMALL = 4
"""The elements of a tensor that stands for a large one."""


class OwnWork(threading.local):
    """A context in which a thread's work takes no host time. (The standard library's functions for generators as
    contexts would be counted.)
    """

    def __init__(self, hook: Hook) -> None:
        self._hook = hook
        self.depth = 0
        """The number of these contexts that this thread has entered."""

    def __enter__(self) -> None:
        self.depth += 1
        self._hook.uncounted(1)

    def __exit__(self, *_: object) -> None:
        self._hook.uncounted(-1)
        self.depth -= 1


class Sharing:
    """Ranks that would compute the same values share them.

    Values, random numbers and the rank's host time stay what they are: host time is charged for the same call on a
    small tensor that stands for the large one, as it does not depend on which rank is first.
    """

    def __init__(self, client: Client, folder: Path, processes: int, hook: Hook) -> None:
        """Called in the forker. `folder`: of locks. `processes`: how many ranks the run has."""
        self.uncounted = OwnWork(hook)
        self.store = Store(client, folder, processes, self.uncounted, hook.name_host)
        self._hook = hook
        self._forker = os.getpid()

    def is_large(self, tensor: Any) -> bool:
        """Tells whether this is a plain tensor in this process's memory, large enough to be shared, whose operations
        nothing intercepts.
        """
        import torch

        if type(tensor) not in (torch.Tensor, torch.nn.Parameter) or self.uncounted.depth:
            return False
        if torch._C._len_torch_function_stack():  # `with torch.device(...)` runs Python where a tensor is looked at
            with self.uncounted:
                if not _has_large_block(tensor):
                    return False
        elif not _has_large_block(tensor):
            return False
        with self.uncounted:
            return (
                tensor.is_contiguous()
                and not torch.compiler.is_compiling()
                and torch._C._functorch.peek_interpreter_stack() is None
                and not torch._C._len_torch_dispatch_stack()
                and not _intercepted()
                and not tensor.is_neg()
                and not tensor.is_conj()
                and self.in_rank()
            )

    def in_rank(self) -> bool:
        """Tells whether this is a rank, not the forker, which imports modules for all ranks."""
        return os.getpid() != self._forker

    def may_fill(self, tensor: Any) -> bool:
        """Tells whether the tensor's pages can be replaced because nobody else sees them. That is so for what torch's
        allocator has given out.
        """
        if not self.is_large(tensor):
            return False
        with self.uncounted:
            storage = tensor.untyped_storage()
            return bool(storage.resizable()) and not storage.is_shared() and not tensor.is_pinned()

    def charge(self, call: Callable[[], object], tensor: Any, elements: int = SMALL) -> None:
        """Lets this call, on a tensor of so many elements instead of this one, take the host time that it would take on
        it, within `uncounted`.
        """
        self._hook.tensors_stand_for(tensor.numel(), elements)
        self._hook.uncounted(-1)
        try:
            call()
        finally:
            self._hook.tensors_stand_for(1, 1)
            self._hook.uncounted(1)

    def fill(self, tensor: Any, key: str, compute: Callable[[], bytes]) -> bytes:
        """Fills the tensor, see Store.fill."""
        import torch

        rest = self.store.fill(key, block_of(tensor), tensor.untyped_storage(), compute)
        torch.autograd.graph.increment_version(tensor)
        return rest


def watched(tensor: Any) -> bool:
    """Tells whether autograd records what is done to the tensor."""
    import torch

    return bool(tensor.requires_grad) and torch.is_grad_enabled()


def _has_large_block(tensor: Any) -> bool:
    import torch

    return bool(
        tensor.is_cpu and tensor.layout is torch.strided and tensor.numel() * tensor.element_size() >= LEAST_NBYTES
    )


def _intercepted() -> bool:
    """Tells whether a mode of the program's changes functions of torch. `with torch.device("cpu")` does not."""
    import torch
    from torch.utils._device import DeviceContext

    if not torch._C._len_torch_function_stack():
        return False
    modes = torch.overrides._get_current_function_mode_stack()
    return any(type(mode) is not DeviceContext for mode in modes)
