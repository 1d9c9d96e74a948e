"""An emulated GPU server: forks its ranks, waits for them, reports how each ended, and ends with the last."""

from __future__ import annotations

import os
import signal
import sys
import traceback
from typing import NoReturn

from ..contract.job import Job, Seat
from ..contract.messages import ControlSocket
from ..contract.process_setup import adopt_orphans
from ..contract.records import ExitKind
from ..interpreter import real_time
from . import processes, rank
from .prepare import Prepared

_AWAITED = (signal.SIGCHLD, signal.SIGTERM)
_NO_DEADLINE_S = 3600.0


def main(job: Job, index: int, prepared: Prepared, control: ControlSocket, forker: int) -> NoReturn:
    """The server's process; never returns to the forker's code. `forker`: its process id, 0 if it is in another pid
    namespace.
    """
    code: int = ExitKind.INTERNAL
    try:
        processes.die_with_parent(forker)
        adopt_orphans()
        # Blocked signals stay pending until sigtimedwait takes them, so none is lost between two calls.
        signal.pthread_sigmask(signal.SIG_BLOCK, _AWAITED)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        _wait(job, _fork_ranks(job, index, prepared, control), control)
        code = 0
    except BrokenPipeError:
        code = 1  # the launcher has gone; the forker is about to kill this process
    except BaseException:
        traceback.print_exc()
    finally:
        processes.kill_descendants()
        sys.stderr.flush()
        os._exit(code)


def _fork_ranks(job: Job, index: int, prepared: Prepared, control: ControlSocket) -> dict[int, Seat]:
    """Returns the ranks by process id."""
    running = {}
    first = job.first_rank(index)
    for local_rank in range(job.servers[index]):
        seat = Seat(rank=first + local_rank, local_rank=local_rank, server=index)
        parent, pid = os.getpid(), os.fork()
        if pid == 0:
            control.close()
            signal.pthread_sigmask(signal.SIG_UNBLOCK, _AWAITED)
            rank.main(job, seat, prepared, parent)
        running[pid] = seat
        control.send("started", rank=seat.rank, server=index, pid=pid)
    return running


def _wait(job: Job, running: dict[int, Seat], control: ControlSocket) -> None:
    """Until no rank is left. Passes SIGTERM on to the ranks; ranks that stay get SIGKILL after the grace time."""
    deadline_s: float | None = None
    while running:
        left_s = _NO_DEADLINE_S if deadline_s is None else max(0.0, deadline_s - real_time.monotonic())
        received = signal.sigtimedwait(_AWAITED, left_s)
        if received is not None and received.si_signo == signal.SIGTERM and deadline_s is None:
            deadline_s = real_time.monotonic() + job.grace_s
            _kill(running, signal.SIGTERM)
        elif received is None and deadline_s is not None:
            _kill(running, signal.SIGKILL)
            deadline_s = None
        for ended in processes.reap():
            if ended.pid in running:
                seat = running.pop(ended.pid)
                control.send("exited", rank=seat.rank, server=seat.server, code=ended.code, signal=ended.signal)


def _kill(running: dict[int, Seat], number: signal.Signals) -> None:
    for pid in running:
        os.kill(pid, number)
