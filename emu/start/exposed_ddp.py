"""Tells that DistributedDataParallel's all-reduces hide behind nothing with PyTorch's newer backend for NCCL.

DistributedDataParallel starts an all-reduce for each bucket of gradients while the backward pass still computes the
next one, and asks for the future of that work at once. In the backend that PyTorch 2.15 uses by default
(`torch/csrc/distributed/c10d/nccl2/WorkNCCL.cpp`), `getFuture` makes the current stream wait for the collective. So the
rest of the backward pass starts only when the all-reduce has ended. The earlier backend does not wait there.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from ..private import access
from ..private.changes import Names, changes

NAME = "exposed all-reduces"
TEXT = (
    "with this version of PyTorch, DistributedDataParallel hides no all-reduce behind the backward pass: the NCCL "
    "backend that it uses by default has the stream wait for each one. TORCH_DIST_USE_NCCL2=0 takes the earlier "
    "backend, whose all-reduces overlap; phantora-async advise says what that brings"
)


def install(tell: Callable[[str, str], None]) -> None:
    """Makes DistributedDataParallel tell when its all-reduces are exposed. Called once, in the forker. `tell`: shows
    the user a text once for each name.
    """

    def change(distributed: Names) -> None:
        newer = distributed.get("ProcessGroupNCCL2")
        if newer is not None:  # earlier versions of PyTorch have only the backend whose all-reduces overlap
            distributed.change("DistributedDataParallel.__init__", functools.partial(_told, tell, newer))

    changes.when_imported("exposed all-reduces", change)


def _told(tell: Callable[[str, str], None], newer: Any, init: Any) -> Any:
    @functools.wraps(init)
    def told(self: Any, *arguments: Any, **named: Any) -> None:
        init(self, *arguments, **named)
        if _hides_nothing(self, newer):
            tell(NAME, TEXT)

    return told


def _hides_nothing(model: Any, newer: Any) -> bool:
    """Tells whether the model's group has several ranks, and the newer backend for the GPU that its parameters are
    on."""
    group = getattr(model, "process_group", None)
    device = getattr(next(iter(model.parameters()), None), "device", None)
    if group is None or device is None or device.type != "cuda" or group.size() < 2:
        return False
    return isinstance(access.backend_of(group, device), newer)
