"""Lets the hook library see the tensors of the CPU that operators take: their work takes host time by bytes and kind.

PyTorch's ranges carry the arguments of an operator, but where is private, and differs between versions. The hook
library finds it by two operators on tensors that it is told of (emu/hook/nvtx/tensors.c). Where it does not, an
operator on tensors of the CPU takes the same time whatever their size.
"""

from __future__ import annotations

from ..private.changes import changes
from .hook_library import Hook

_PURPOSE = "tensors of the CPU"


def find(hook: Hook) -> None:
    """Called in a rank, while operators are announced on the calling thread."""
    names = changes.usable(_PURPOSE)
    if names is None:
        return
    import torch

    keys_of = names.get("_dispatch_keys")
    hook.aside(1)
    try:
        first, second, other = torch.ones(3), torch.ones(3), torch.empty(3, device="meta")
        (one, keys), (meta, meta_keys) = [(of._cdata, int(keys_of(of).raw_repr())) for of in (first, other)]
        hook.tensors_seek(one, second._cdata, keys, meta, meta_keys)
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
