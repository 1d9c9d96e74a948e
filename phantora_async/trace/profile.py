"""Tells the profiler of a script where the entries of its rank lie in virtual time, and what its kernels are."""

from __future__ import annotations

from emu.contract import records
from emu.contract.records import TracedKind
from phantora_async.trace import names
from phantora_async.trace.rank_trace import Placed
from phantora_async.trace.spans import Kernel, Nccl
from phantora_async.trace.writing import Context
from profiles import COPY, FILL, KERNEL, activity

_MOST_ENTRIES = 4096
"""The most entries of one record."""
_KINDS = {KERNEL: TracedKind.KERNEL, COPY: TracedKind.COPY, FILL: TracedKind.FILL}
_LIBRARYS_GRID, _LIBRARYS_BLOCK = (1, 1, 1), (128, 1, 1)
"""The grid and block that are given for kernels that a library chooses, whose own are not known: profilers divide by
these.
"""
_NCCL_KEYS = 1 << 63


class Profile:
    """The places and kernels of one rank: ``place`` entries, ``take`` records for its hook library."""

    def __init__(self, rank: int, context: Context) -> None:
        self._context = context
        self._rank = rank
        self._records: list[bytes] = []
        self._entries: list[bytes] = []
        self._told: set[int] = set()
        self._nccl: dict[str, int] = {}

    def place(self, placed: Placed) -> None:
        gpu = placed.gpu
        if gpu is None:
            entry = placed.number, placed.start_ns, placed.end_ns, 0, 0, 0
        else:
            key = self._kernel(gpu) if isinstance(gpu, Kernel) else self._collective(gpu)
            entry = placed.number, placed.start_ns, placed.end_ns, key, gpu.device, gpu.stream
        self._entries.append(records.TracedEntry.encode(*entry))
        if len(self._entries) >= _MOST_ENTRIES:
            self._close()

    def take(self) -> list[bytes]:
        """The encoded records since the last call."""
        self._close()
        taken, self._records = self._records, []
        return taken

    def _close(self) -> None:
        if self._entries:
            payload = b"".join(self._entries)
            self._records.append(records.Traced.encode(0, len(self._entries), 0, payload=payload))
            self._entries.clear()

    def _kernel(self, kernel: Kernel) -> int:
        if kernel.key not in self._told:
            what = activity(self._context.costs.priced(kernel.key).signature)
            grid, block = what.grid or _LIBRARYS_GRID, what.block or _LIBRARYS_BLOCK
            self._tell(kernel.key, what.nbytes, _KINDS[what.kind], what.shared_nbytes, grid, block, what.name)
        return kernel.key

    def _collective(self, kernel: Nccl) -> int:
        name, channels = "ncclDevKernel_Generic", 0
        if kernel.moved:
            collective = kernel.moved[0].collective
            plan = self._context.plan(collective)
            name, channels = names.kernel_name(collective, plan), plan.channels
        key = self._nccl.setdefault(f"{name} {channels}", _NCCL_KEYS + len(self._nccl))
        if key not in self._told:
            self._tell(key, 0, TracedKind.KERNEL, 0, (channels, 1, 1), (512, 1, 1), name)
        return key

    def _tell(
        self,
        key: int,
        nbytes: int,
        kind: TracedKind,
        shared_nbytes: int,
        grid: tuple[int, int, int],
        block: tuple[int, int, int],
        name: str,
    ) -> None:
        self._told.add(key)
        payload = name.encode()
        self._records.append(
            records.TracedWork.encode(0, key, nbytes, int(kind), shared_nbytes, *grid, *block, payload=payload)
        )
