"""Peaks of torch's caching allocator over the whole run, although scripts reset them, and without what compilers
allocate to compare candidates.
"""

from __future__ import annotations

import contextlib
import functools
import sys
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from ..private.changes import Names, changes
from .hook_library import Hook

_POOLS = {
    "_cuda_beginAllocateToPool": 1,
    "_cuda_beginAllocateCurrentThreadToPool": 1,
    "_cuda_endAllocateToPool": -1,
}
Stats = dict[str, Any]
"""Torch's statistics, nested: what is counted, where, and `current`, `peak` ..."""


class Peaks(NamedTuple):
    """The peaks of one device, in bytes."""

    allocated: int = 0
    reserved: int = 0


class PeakMemory:
    """The peaks of one rank."""

    def __init__(self) -> None:
        self._peaks: dict[int, Peaks] = {}
        self._told: dict[int, Peaks] = {}
        """The peaks that the coordinator has been told, by device."""
        self._lowest: dict[int, Stats] = {}
        """Statistics at the beginning of an `unnoticed` block since which torch has counted from zero, by device."""
        self._pools = 0
        """The number of `unnoticed` blocks, CUDA graphs and the like that take their memory from a pool of their own
        now.
        """
        self._read: Callable[[int], Stats] | None = None
        self._reset: Callable[[int], None] | None = None

    def install(self) -> None:
        """Makes torch's peaks be noted before a script resets them. Called once, in the rank."""
        if changes.install("memory peaks", self._change):
            changes.install("memory statistics of accelerators", self._change_accelerators)
            changes.install("memory pools", self._change_pools)

    def _change(self, names: Names) -> None:
        read, reset = (names.get(name) for name in ("_cuda_memoryStats", "_cuda_resetPeakMemoryStats"))
        names.change("_cuda_memoryStats", self._lifted)
        names.change("_cuda_resetPeakMemoryStats", self._noting_before)
        self._read, self._reset = read, reset

    def _change_accelerators(self, names: Names) -> None:
        names.change("_accelerator_getDeviceStats", self._lifted)
        names.change("_accelerator_resetPeakStats", self._noting_before)

    def _change_pools(self, names: Names) -> None:
        for module in ("torch._C", "torch.cuda.memory"):
            for name, by in _POOLS.items():
                names.change(f"{module}.{name}", functools.partial(self._counting_pools, by))

    def report_step(self, hook: Hook) -> None:
        """Tells the coordinator the peaks at the end of every step: a rank that is killed later has told its peaks up
        to its last step.
        """
        hook.uncounted(1)
        try:
            self._note()
        finally:
            hook.uncounted(-1)
        self._tell(hook)

    def report(self, hook: Hook) -> None:
        """Tells the coordinator the peaks of every device that this rank used."""
        self._note()
        self._told.clear()
        self._tell(hook)

    def _tell(self, hook: Hook) -> None:
        if _counts_nothing():
            cuda = sys.modules["torch"].cuda
            taken = {device: hook.memory_taken(device) for device in range(cuda.device_count())}
            self._peaks = {device: Peaks(nbytes, nbytes) for device, nbytes in taken.items() if nbytes}
        for device, peaks in sorted(self._peaks.items()):
            if self._told.get(device) != peaks:
                self._told[device] = peaks
                hook.memory(device, peaks.allocated, peaks.reserved)

    @contextlib.contextmanager
    def unnoticed(self) -> Iterator[None]:
        """A context in which this thread's allocations raise no peak. Its cached memory is returned at the block's
        end.
        """
        torch = sys.modules["torch"]
        if self._read is None or self._reset is None or not torch.cuda.is_initialized() or self._has_no_pool():
            yield  # torch ends the process if a pool dies while another one is in use
            return
        device = torch.cuda.current_device()
        before = self._stats(device)
        pool = torch.cuda.MemPool()
        try:
            with torch.cuda.use_mem_pool(pool, device):
                yield
        finally:
            del pool
            if _peaks(self._stats(device)) != _peaks(before):
                self._reset(device)
                self._lowest[device] = before

    def _has_no_pool(self) -> bool:
        cuda = sys.modules["torch"].cuda
        return self._pools > 0 or cuda.is_current_stream_capturing() or cuda.get_allocator_backend() != "native"

    def _counting_pools(self, by: int, function: Callable[..., None]) -> Callable[..., None]:
        def begin_or_end(*arguments: Any) -> None:
            function(*arguments)
            self._pools += by

        return begin_or_end

    def _stats(self, device: int) -> Stats:
        assert self._read is not None, "install comes first"
        return _lift(self._read(device), self._lowest.get(device))

    def _lifted(self, read: Callable[[int], Stats]) -> Callable[[int], Stats]:
        def read_stats(device: int) -> Stats:
            return _lift(read(device), self._lowest.get(device))

        return read_stats

    def _noting_before(self, reset: Callable[[int], None]) -> Callable[[int], None]:
        def reset_peaks(device: int) -> None:
            self._note()
            reset(device)
            self._lowest.pop(device, None)

        return reset_peaks

    def _note(self) -> None:
        torch = sys.modules["torch"]
        if self._read is None or not torch.cuda.is_initialized() or _counts_nothing():
            return
        for device in range(torch.cuda.device_count()):
            now = _peaks(self._stats(device))
            if any(now):
                before = self._peaks.get(device, Peaks())
                self._peaks[device] = Peaks(*map(max, before, now))


def _counts_nothing() -> bool:
    """Tells whether the script has brought an allocator of its own. Then peaks are what it took of CUDA."""
    cuda = sys.modules["torch"].cuda
    return bool(cuda.is_initialized() and cuda.get_allocator_backend() == "pluggable")


def _peaks(stats: Stats) -> Peaks:
    return Peaks(stats["allocated_bytes"]["all"]["peak"], stats["reserved_bytes"]["all"]["peak"])


def _lift(stats: Stats, lowest: Stats | None) -> Stats:
    """Raises every peak to what it was before."""
    for name, value in lowest.items() if lowest is not None else ():
        if isinstance(value, dict):
            stats[name] = _lift(stats[name], value)
        elif name == "peak":
            stats[name] = max(stats[name], value)
    return stats
