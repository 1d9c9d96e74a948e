"""Lets the hook library see the tensors of the CPU that operators take: their work takes host time by bytes and kind.

PyTorch's ranges carry the arguments of an operator, but where is private, and differs between versions. The hook
library finds it by two operators on tensors that it is told of (emu/hook/nvtx/tensors.c). Where it does not, an
operator on tensors of the CPU takes the same time whatever their size.
"""

from __future__ import annotations

from typing import Any

from ..private.changes import changes
from .hook_library import Hook

_PURPOSE = "tensors of the CPU"
_NEVER = ("Python", "FuncTorchBatched", "FuncTorchGradWrapper", "Functionalize")
"""Dispatch keys of tensors that are no memory themselves."""


def find(hook: Hook) -> None:
    """Called in a rank, while operators are announced on the calling thread."""
    names = changes.usable(_PURPOSE)
    if names is None:
        return
    import torch

    key_set, key = names.get("DispatchKeySet"), names.get("DispatchKey")
    keys_of = names.get("_dispatch_keys")

    def raw(of: Any) -> int:
        return int(of.raw_repr())

    hook.aside(1)
    try:
        first, second, other = torch.ones(3), torch.ones(3), torch.empty(3, device="meta")
        never = 0
        for name in _NEVER:
            never |= raw(key_set(getattr(key, name)))
        tensors = [(one._cdata, raw(keys_of(one))) for one in (first, other)]
        (one, keys), (meta, other_keys) = tensors
        hook.tensors_seek(one, second._cdata, keys, meta, other_keys, raw(key_set(key.CPU)), never)
        torch.add(first, second)
        torch.cat([first, second])
        found = hook.tensors_sought()
    finally:
        hook.aside(-1)
    if found != FOUND:
        hook.warn_once(
            _PURPOSE,
            f"operators on {_PURPOSE} take the same time whatever their size: PyTorch keeps them elsewhere ({found})",
        )


FOUND = 7
"""The answer of the hook library when it has found all: arguments, devices, lists."""
