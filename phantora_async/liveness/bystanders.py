"""Looks at processes of the run's servers on this machine that are no ranks: launchers, servers of models, their
clients.

Ranks that all sleep may wait for one of them, which no record tells: for a client that imports its modules, or for the
next request, whoever sends it.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping

from emu.contract.definitions.thread_names import SERVES, WATCHES
from phantora_async.liveness.listening import Listener, listener
from phantora_async.liveness.proc_fs import ProcFs, parent
from phantora_async.liveness.sleep_detector import POLLING_SHARE, Thread
from phantora_async.liveness.timed_sleep import sleeps_until_s

LOOK_EVERY_S = 1.0
"""The seconds between two looks: there may be hundreds of processes."""


class Bystanders:
    """Looks at all processes below this one that the forker has started, but those of ranks."""

    def __init__(
        self,
        pids: Mapping[int, int],
        of_ranks: Callable[[], set[int]],
        processes: ProcFs | None = None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """`pids`: the ranks' processes; `of_ranks`: all threads that have been seen in these and below them."""
        self._pids = pids
        self._of_ranks = of_ranks
        self._processes = processes or ProcFs()
        self._monotonic = monotonic
        self._seen: dict[int, Thread] = {}
        self._looked_s: float | None = None
        self._work = True

    def work(self) -> bool:
        """Returns true if one of them has worked since the last look, at least LOOK_EVERY_S ago. The first look cannot
        tell.
        """
        now_s = self._monotonic()
        if self._looked_s is not None and now_s - self._looked_s < LOOK_EVERY_S:
            return self._work
        for_s = None if self._looked_s is None else now_s - self._looked_s
        before, self._seen, self._looked_s = self._seen, self._look(), now_s
        self._work = for_s is None or worked(before, self._seen, for_s)
        return self._work

    def listener(self) -> Listener | None:
        """One of all processes, ranks included, that waits for somebody to connect."""
        ranks = {pid: rank for rank, pid in self._pids.items()}
        root = self._root()
        for pid in self._processes.family(root) if root else ():
            if found := listener(pid, is_rank=pid in ranks):
                return found
        return None

    def sleep_until_s(self) -> float:
        """The instant of the monotonic clock at which the last thread that is in a timed sleep wakes up, of all
        processes, ranks included; 0.0 if none is.
        """
        root = self._root()
        return max((sleeps_until_s(pid) for pid in self._processes.family(root)), default=0.0) if root else 0.0

    def _look(self) -> dict[int, Thread]:
        root = self._root()
        threads = self._processes.threads(root) if root else None
        of_ranks = self._of_ranks()
        return {
            number: thread
            for number, thread in (threads or {}).items()
            if number not in of_ranks and not thread.name.startswith((*SERVES, *WATCHES))
        }

    def _root(self) -> int:
        """The forker: the ancestor of a rank that this process has started. 0: no rank is on this machine."""
        own = os.getpid()
        for pid in self._pids.values():
            while pid > 1:
                above = parent(pid)
                if above == own:
                    return pid
                pid = above
        return 0


def worked(before: Mapping[int, Thread], seen: Mapping[int, Thread], for_s: float) -> bool:
    used_ns = sum(
        max(0, thread.used_ns - (before[number].used_ns if number in before else 0)) for number, thread in seen.items()
    )
    if used_ns > POLLING_SHARE * for_s * 1e9:
        return True
    # One that wants a processor and gets none, on a busy machine, works too. A single look may meet one that polls.
    return any(
        not thread.sleeping and number in before and not before[number].sleeping for number, thread in seen.items()
    )
