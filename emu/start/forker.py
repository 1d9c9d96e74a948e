"""The forker: the process from which all servers are forked.

It prepares one interpreter (see `prepare`), forks the servers and waits. It ends when all servers have ended, or when
the launcher's end of the control socket closes for whatever reason; then it kills every process below itself.
"""

from __future__ import annotations

import os
import select
import shutil
import signal
import socket
import sys

from ..contract.job import Job
from ..contract.messages import ControlSocket
from ..contract.process_setup import adopt_orphans
from . import processes, server
from .prepare import CannotPrepare, Prepared, prepare


def main(fileno: int) -> None:
    """The forker's process, from its first message to its end. `fileno`: its end of the control socket."""
    control = ControlSocket(socket.socket(fileno=fileno))
    message = control.receive()
    if message is None:
        return
    message.pop("event")
    job = Job.parse(message)
    adopt_orphans()
    try:
        # It has no child yet, and does not read the control socket for the seconds that importing torch takes.
        processes.die_with_parent(os.getppid())
        if control.closed():
            return
        prepared = prepare(job)
        processes.outlive_parent()
    except CannotPrepare as error:
        control.send("failed", message=str(error), hint=error.hint)
        return
    import torch

    control.send("ready", torch=torch.__version__, python=sys.version.partition(" ")[0])
    _supervise(job, prepared, control)


def _supervise(job: Job, prepared: Prepared, control: ControlSocket) -> None:
    """Forks the servers, then waits until they have ended or the launcher has gone."""
    wakeup, wake = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    servers: dict[int, int] = {}
    """Process id -> the server's index."""
    for index in range(len(job.servers)):
        parent, pid = os.getpid(), os.fork()
        if pid == 0:
            signal.set_wakeup_fd(-1)
            os.close(wakeup)
            os.close(wake)
            server.main(job, index, prepared, control, parent)
        servers[pid] = index
    poll = select.poll()
    poll.register(control.fileno(), select.POLLIN)
    poll.register(wakeup, select.POLLIN)
    while servers:
        for descriptor, _ in poll.poll():
            if descriptor == wakeup:
                os.read(wakeup, 4096)
            elif not _obey(control, servers):
                processes.kill_descendants()
                shutil.rmtree(job.runtime_dir, ignore_errors=True)  # the launcher cannot do it any more
                return
        for ended in processes.reap():
            if ended.pid in servers:
                index = servers.pop(ended.pid)
                if ended.code or ended.signal:
                    control.send("server_lost", server=index, code=ended.code, signal=ended.signal)
    processes.kill_descendants()
    control.send("done")


def _obey(control: ControlSocket, servers: dict[int, int]) -> bool:
    """Receives one message of the launcher; returns False if the launcher has gone."""
    message = control.receive()
    if message is None:
        return False
    if message["event"] == "terminate":
        for pid in servers:
            os.kill(pid, signal.SIGTERM)
        return True
    raise ValueError(f"unknown message {message}")
