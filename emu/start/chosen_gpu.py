"""A program that chooses its GPU uses it from then on: it becomes that GPU's rank.

PyTorch tells CUDA of every choice but that of GPU 0, which a process has from its start. Without more the process of
GPU 0 would become a rank later than the others: where they wait for it on the host meanwhile, for ever.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from typing import Any

from . import rank


def install(use: Callable[[], object]) -> None:
    """Has `use` called, which uses the current GPU, when the program chooses one. Called in a process that is no rank
    yet.
    """
    import torch

    for module, name in ((torch.cuda, "set_device"), (torch.accelerator, "set_device_index")):
        setattr(module, name, _choosing(getattr(module, name), use))


def _choosing(choose: Callable[..., Any], use: Callable[[], object]) -> Callable[..., Any]:
    @functools.wraps(choose)
    def choose_and_use(device: Any, *arguments: Any, **named: Any) -> Any:
        result = choose(device, *arguments, **named)
        nothing = isinstance(device, int) and device < 0
        if rank.OF_RANK not in os.environ and not nothing:
            use()
        return result

    return choose_and_use
