"""Recognises training steps, by the rule that emulated ranks follow (emu/hook/nvtx/nvtx.c): an optimizer that steps
ends a step if a backward pass has run since the last one. Of several optimizers in a row the first does.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook


def at_step(run: Callable[[], None]) -> None:
    """Calls `run` at the end of every step, within the optimizer's call, on the thread that made it."""
    backward_seen = False
    run_backward = torch.autograd.graph._engine_run_backward

    def noting(*given: Any, **options: Any) -> Any:
        nonlocal backward_seen
        backward_seen = True
        return run_backward(*given, **options)

    def stepped(*_: Any) -> None:
        nonlocal backward_seen
        if backward_seen:
            backward_seen = False
            run()

    torch.autograd.graph._engine_run_backward = noting
    torch.autograd._engine_run_backward = noting
    register_optimizer_step_post_hook(stepped)
