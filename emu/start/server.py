"""An emulated GPU server: forks its ranks, watches them, reports how each ended, and ends with the last."""

from __future__ import annotations

import os
import signal
import sys
import traceback
from typing import TYPE_CHECKING, NoReturn

from ..contract.job import Job, Seat
from ..contract.messages import ControlSocket
from ..contract.process_setup import adopt_orphans
from ..contract.records import ExitKind
from . import isolation, processes, rank

if TYPE_CHECKING:
    from .forker import Warm

_WATCHED = (signal.SIGCHLD, signal.SIGTERM)


def main(job: Job, index: int, warmed: Warm, control: ControlSocket, forker: int) -> NoReturn:
    """The server's process; never returns to the forker's code."""
    code: int = ExitKind.INTERNAL
    try:
        processes.die_with_parent(forker)
        adopt_orphans()
        isolation.enter(job.isolation, index)
        # Blocked, they wait for sigtimedwait: none can slip in between a look and a sleep.
        signal.pthread_sigmask(signal.SIG_BLOCK, _WATCHED)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        _watch(job, _fork_ranks(job, index, warmed, control), control)
        code = 0
    except BrokenPipeError:
        code = 1  # the launcher has gone; the forker is about to kill us
    except BaseException:
        traceback.print_exc()
    finally:
        processes.kill_descendants()
        sys.stderr.flush()
        os._exit(code)


def _fork_ranks(job: Job, index: int, warmed: Warm, control: ControlSocket) -> dict[int, Seat]:
    running = {}
    first = job.first_rank(index)
    for local_rank in range(job.servers[index]):
        seat = Seat(first + local_rank, local_rank, index)
        parent, pid = os.getpid(), os.fork()
        if pid == 0:
            control.close()
            signal.pthread_sigmask(signal.SIG_UNBLOCK, _WATCHED)
            rank.main(job, seat, warmed, parent)
        running[pid] = seat
        control.send("started", rank=seat.rank, server=index, pid=pid)
    return running


def _watch(job: Job, running: dict[int, Seat], control: ControlSocket) -> None:
    """Until no rank is left. SIGTERM is passed on to them, and SIGKILL follows after the grace time."""
    deadline_ns: int | None = None
    while running:
        left_s = 3600.0 if deadline_ns is None else max(0.0, (deadline_ns - _now_ns()) / 1e9)
        received = signal.sigtimedwait(_WATCHED, left_s)
        if received is not None and received.si_signo == signal.SIGTERM and deadline_ns is None:
            deadline_ns = _now_ns() + int(job.grace_s * 1e9)
            _kill(running, signal.SIGTERM)
        elif received is None and deadline_ns is not None:
            _kill(running, signal.SIGKILL)
            deadline_ns = None
        for pid, status in processes.reap():
            if pid in running:
                seat = running.pop(pid)
                code, number = processes.exit_of(status)
                control.send("exited", rank=seat.rank, server=seat.server, code=code, signal=number)


def _kill(running: dict[int, Seat], number: signal.Signals) -> None:
    for pid in running:
        os.kill(pid, number)


def _now_ns() -> int:
    import time

    return time.clock_gettime_ns(time.CLOCK_MONOTONIC)
