"""Peaks of torch's caching allocator over the whole run, although scripts reset them."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, NamedTuple

from .hook_library import Hook

_RESETS = ("_cuda_resetPeakMemoryStats", "_accelerator_resetPeakStats")


class Peaks(NamedTuple):
    """Of one device, in bytes."""

    allocated: int = 0
    reserved: int = 0


class PeakMemory:
    """The peaks of one rank."""

    def __init__(self) -> None:
        self._peaks: dict[int, Peaks] = {}

    def install(self) -> None:
        """In the rank, once: from now on torch's peaks are noted before a script resets them."""
        torch = sys.modules["torch"]
        for name in _RESETS:
            reset = getattr(torch._C, name, None)
            if reset is not None:
                setattr(torch._C, name, self._noting_before(reset))

    def report(self, hook: Hook) -> None:
        """Tells the coordinator the peaks of every device that this rank used."""
        self._note()
        for device, peaks in sorted(self._peaks.items()):
            hook.memory(device, peaks.allocated, peaks.reserved)

    def _noting_before(self, reset: Callable[..., None]) -> Callable[..., None]:
        def reset_peaks(*arguments: Any) -> None:
            self._note()
            reset(*arguments)

        return reset_peaks

    def _note(self) -> None:
        torch = sys.modules["torch"]
        if not torch.cuda.is_initialized():
            return
        for device in range(torch.cuda.device_count()):
            stats = torch._C._cuda_memoryStats(device)
            now = Peaks(stats["allocated_bytes"]["all"]["peak"], stats["reserved_bytes"]["all"]["peak"])
            if any(now):
                before = self._peaks.get(device, Peaks())
                self._peaks[device] = Peaks(*map(max, before, now))
