"""Peaks of torch's caching allocator, as the report wants them: over the whole run, though scripts reset them."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from .hook_library import Hook

_RESETS = ("_cuda_resetPeakMemoryStats", "_accelerator_resetPeakStats")
_peaks: dict[int, tuple[int, int]] = {}


def watch_peaks() -> None:
    """From now on, a script that resets the peaks does not take them from us. Once per rank."""
    torch = sys.modules["torch"]
    for name in _RESETS:
        reset = getattr(torch._C, name, None)
        if reset is not None:
            setattr(torch._C, name, _remembering(reset))


def _remembering(reset: Callable[..., None]) -> Callable[..., None]:
    def reset_peaks(*arguments: Any) -> None:
        _remember()
        reset(*arguments)

    return reset_peaks


def _remember() -> None:
    torch = sys.modules["torch"]
    if not torch.cuda.is_initialized():
        return
    for device in range(torch.cuda.device_count()):
        stats = torch._C._cuda_memoryStats(device)
        allocated = stats["allocated_bytes"]["all"]["peak"]
        reserved = stats["reserved_bytes"]["all"]["peak"]
        before = _peaks.get(device, (0, 0))
        if allocated or reserved:
            _peaks[device] = max(before[0], allocated), max(before[1], reserved)


def report(hook: Hook) -> None:
    """Tells the coordinator the peaks of every device that this rank used."""
    _remember()
    for device, (allocated, reserved) in sorted(_peaks.items()):
        hook.memory(device, allocated, reserved)
