"""Random initialisation of large CPU tensors: ranks that would draw the same numbers draw them once.

What `uniform_` and the like write follows from their arguments and the generator's state alone. Where a rank's call has
been made before in this run, its tensor maps the values that were drawn then, and its generator moves on as if it had
drawn them. Host time is charged as for a small tensor: it does not depend on which rank is first.
"""

from __future__ import annotations

import functools
import hashlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ..interpreter.hook_library import Hook
from .store import LEAST_NBYTES, Block, Store

METHODS = ("uniform_", "normal_")
"""Of torch.Tensor."""
FUNCTIONS = ("trunc_normal_", "orthogonal_")
"""Of torch.nn.init: these change the numbers that they draw."""


class Initialisation:
    def __init__(self, folder: Path, hook: Hook) -> None:
        self._store = Store(folder)
        self._hook = hook
        self._forker = os.getpid()
        """Whose own initialisations are not shared."""
        self._drawing = False

    def install(self) -> None:
        """In the forker, once."""
        import torch
        import torch.nn.init

        for name in METHODS:
            setattr(torch.Tensor, name, self._shared(getattr(torch.Tensor, name), name))
        for name in FUNCTIONS:
            setattr(torch.nn.init, name, self._shared(getattr(torch.nn.init, name), name))

    def _shared(self, function: Callable[..., Any], name: str) -> Callable[..., Any]:
        import torch

        def refused(tensor: Any) -> bool:
            """Torch refuses to change what autograd watches; the functions of torch.nn.init switch autograd off."""
            return name in METHODS and bool(tensor.requires_grad) and torch.is_grad_enabled()

        @functools.wraps(function)
        def initialise(tensor: Any, *arguments: Any, **options: Any) -> Any:
            if self._drawing or refused(tensor) or not self._may_share(tensor):
                return function(tensor, *arguments, **options)
            return self._initialise(function, name, tensor, arguments, options)

        return initialise

    def _may_share(self, tensor: Any) -> bool:
        import torch

        return (
            type(tensor) in (torch.Tensor, torch.nn.Parameter)
            and tensor.device.type == "cpu"
            and tensor.layout is torch.strided
            and tensor.is_contiguous()
            and tensor.numel() * tensor.element_size() >= LEAST_NBYTES
            and not torch._C._len_torch_dispatch_stack()
            and os.getpid() != self._forker
        )

    def _initialise(
        self, function: Callable[..., Any], name: str, tensor: Any, arguments: tuple[Any, ...], options: dict[str, Any]
    ) -> Any:
        import torch

        generator = options.get("generator") or torch.default_generator
        self._drawing = True
        self._hook.uncounted(1)
        try:
            state = generator.get_state()
            small = torch.empty(2, 2, dtype=tensor.dtype)
            self._hook.uncounted(-1)
            try:
                function(small, *arguments, **options)  # for its host time
            finally:
                self._hook.uncounted(1)
            generator.set_state(state)

            def draw() -> bytes:
                function(tensor.detach(), *arguments, **options)
                return bytes(generator.get_state().numpy().tobytes())

            others = sorted((option, value) for option, value in options.items() if option != "generator")
            asked = f"{name} {arguments} {others} {tuple(tensor.shape)} {tensor.dtype}"
            key = hashlib.blake2b(state.numpy().tobytes() + asked.encode(), digest_size=20).hexdigest()
            block = Block(tensor.data_ptr(), tensor.numel() * tensor.element_size())
            after = self._store.fill(key, block, draw)
            generator.set_state(torch.frombuffer(bytearray(after), dtype=torch.uint8))
        finally:
            self._hook.uncounted(-1)
            self._drawing = False
        return tensor
