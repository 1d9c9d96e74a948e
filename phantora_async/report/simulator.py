"""Measures the cost of the simulation itself: wall time, processor time and memory of this process, private memory of
ranks.
"""

from __future__ import annotations

import os
import resource
import time
from typing import Any

import psutil

SAMPLE_EVERY_S = 4.0
MOST_GOODBYES = 32
"""The most ranks that are measured when they end: adding up the memory maps of a large process takes 20 ms of CPU
time.
"""


class Usage:
    """Counts records and samples memory. The largest value seen of each rank counts."""

    def __init__(self) -> None:
        self._started_s = time.monotonic()
        self._processes: dict[int, psutil.Process] = {}
        """The processes of ranks, by rank."""
        self._next = 0
        self._sampled_s = self._started_s
        self._goodbyes = 0
        self._private_nbytes: dict[int, int] = {}
        self._records = 0
        self._record_nbytes = 0
        self.passed_over = 0
        """The number of times that virtual time continued without ranks that slept where no record says so."""

    def add_rank(self, rank: int, pid: int) -> None:
        """Adds a rank that has connected."""
        try:
            self._processes[rank] = psutil.Process(pid)
        except psutil.NoSuchProcess:
            return

    def received(self, records: int, nbytes: int) -> None:
        """Counts records that have arrived, and their bytes."""
        self._records += records
        self._record_nbytes += nbytes

    def goodbye(self, rank: int) -> None:
        """Measures a rank that has sent BYE and is about to end."""
        if self._goodbyes < MOST_GOODBYES:
            self._goodbyes += 1
            self._sample(rank)

    def sample_next(self) -> None:
        """Measures the next rank in turn, if SAMPLE_EVERY_S have passed since the last one."""
        now_s = time.monotonic()
        if self._processes and now_s - self._sampled_s >= SAMPLE_EVERY_S:
            self._sampled_s = now_s
            self._sample(sorted(self._processes)[self._next % len(self._processes)])
            self._next += 1

    def _sample(self, rank: int) -> None:
        """Measures the rank's private memory: the memory that would become free if the process ended. Does nothing if
        it has ended already: a process that waits for its parent has no memory.
        """
        try:
            private_nbytes = self._processes[rank].memory_full_info().uss
        except (KeyError, psutil.Error):
            return
        if private_nbytes:
            self._private_nbytes[rank] = max(self._private_nbytes.get(rank, 0), private_nbytes)

    def document(self) -> dict[str, Any]:
        """The figures for the report."""
        own = resource.getrusage(resource.RUSAGE_SELF)
        private = sorted(self._private_nbytes.values())
        return {
            "wall_s": round(time.monotonic() - self._started_s, 3),
            "coordinator_cpu_s": round(own.ru_utime + own.ru_stime, 3),
            "coordinator_system_s": round(own.ru_stime, 3),
            "coordinator_peak_rss_nbytes": own.ru_maxrss * 1024,
            "cpus": len(os.sched_getaffinity(0)),
            "records": self._records,
            "record_nbytes": self._record_nbytes,
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
