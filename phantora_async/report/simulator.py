"""What the simulator itself needs: wall time, processor time, memory; of the ranks, memory that they do not share."""

from __future__ import annotations

import os
import resource
import time
from pathlib import Path
from typing import Any

SAMPLE_S = 4.0
AT_GOODBYE = 32
"""Ranks looked at when they end: summing up the maps of a large process takes 20 ms of processor time."""
PROC = Path("/proc")


class Usage:
    """Counts and samples. Some ranks' memory is looked at now and then, or at the goodbye; the largest value counts."""

    def __init__(self) -> None:
        self._started_s = time.monotonic()
        self._pids: dict[int, int] = {}
        self._next = 0
        self._sampled_s = self._started_s
        self._goodbyes = 0
        self.private_nbytes: dict[int, int] = {}
        self.records = 0
        self.record_nbytes = 0
        self.passed_over = 0
        """How often virtual time went on without ranks that slept where no record tells of it."""

    def add_rank(self, rank: int, pid: int) -> None:
        self._pids[rank] = pid

    def sample_rank(self, rank: int) -> None:
        """Private memory: what would come free if the process ended. Nothing is noted of one that has ended already."""
        try:
            text = (PROC / str(self._pids[rank]) / "smaps_rollup").read_text()
        except (FileNotFoundError, ProcessLookupError, PermissionError):
            return
        private = sum(int(row.split()[1]) for row in text.splitlines() if row.startswith("Private_"))
        self.private_nbytes[rank] = max(self.private_nbytes.get(rank, 0), private * 1024)

    def goodbye(self, rank: int) -> None:
        """The rank has said BYE, and is about to end."""
        if self._goodbyes < AT_GOODBYE:
            self._goodbyes += 1
            self.sample_rank(rank)

    def sample_next(self) -> None:
        """The next rank in turn, if some time has passed since the last one."""
        now_s = time.monotonic()
        if self._pids and now_s - self._sampled_s >= SAMPLE_S:
            self._sampled_s = now_s
            self.sample_rank(sorted(self._pids)[self._next % len(self._pids)])
            self._next += 1

    def document(self) -> dict[str, Any]:
        own = resource.getrusage(resource.RUSAGE_SELF)
        private = sorted(self.private_nbytes.values())
        return {
            "wall_s": round(time.monotonic() - self._started_s, 3),
            "coordinator_cpu_s": round(own.ru_utime + own.ru_stime, 3),
            "coordinator_peak_rss_nbytes": own.ru_maxrss * 1024,
            "cpus": len(os.sched_getaffinity(0)),
            "records": self.records,
            "record_nbytes": self.record_nbytes,
            "passed_over": self.passed_over,
            "rank_private_nbytes": {
                "min": private[0],
                "median": private[len(private) // 2],
                "max": private[-1],
                "sum": sum(private),
                "ranks": len(private),
            }
            if private
            else None,
        }
