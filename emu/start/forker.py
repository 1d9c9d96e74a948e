"""The forker: the process from which all servers are forked.

It prepares the interpreter for its job (see `prepare`), forks the servers and waits. It ends when all servers have
ended, or when the launcher's end of the control socket closes for whatever reason; then it kills every process below
itself.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import select
import shutil
import signal
import socket
import sys
from collections.abc import Sequence
from typing import Any

from ..contract import installed, isolation
from ..contract.job import Job, RunPlace
from ..contract.messages import ControlSocket
from ..contract.process_setup import NO_PROCESS, NO_PROCESS_HINT, adopt_orphans
from ..private.changes import changes
from ..servers import file_system
from ..servers.admission import Admission, CannotIsolate
from ..servers.run_namespaces import Preparation as NamespacePreparation
from ..servers.run_namespaces import RunNamespaces
from . import inputs, launching, processes, server
from .prepare import CannotPrepare, Preparation, Prepared, prepare


def main(control: ControlSocket, network: socket.socket, made: Preparation, libraries: str) -> None:
    """Runs the forker's process, from its first message to its end. `control`: its end of the control socket;
    `network`: its end of the socket to the process that joins the servers' networks; `made`: what was imported;
    `libraries`: the folder in which the dynamic linker finds ours.
    """
    preload_no_more()
    message = control.receive()
    if message is None:
        return
    job = Job.read(message["file"])
    unnoted = inputs.share(job.inputs)
    if job.inputs:
        # A warm interpreter's folder of libraries is not the run's.
        control.send("noted", folders=[job.runtime_dir, os.path.dirname(libraries)], fault=unnoted)
    adopt_orphans()
    for index in job.hosted:
        os.mkdir(isolation.server_folder(job.runtime_dir, index))
    try:
        # It does not read the control socket for the seconds that imports for the script may take.
        with processes.ending_with_peer(control.fileno(), control.closed, job.runtime_dir):
            preparation = _begin_isolation(job, network, libraries)
            prepared = prepare(made, job)
            job, namespaces = _isolate(job, preparation, control)
    except CannotPrepare as error:
        control.send("failed", message=str(error), hint=error.hint)
        return
    except BlockingIOError:  # fork(2)
        control.send("failed", message=NO_PROCESS, hint=NO_PROCESS_HINT)
        processes.kill_descendants()
        return
    launching.make_interpreter_folder(job)
    if job.launcher and namespaces is not None:
        launching.write_scripts(job)
    import torch

    control.send("ready", torch=torch.__version__, python=sys.version.partition(" ")[0])
    for text in changes.take_untold():
        control.send("left_out", text=text)
    orders = _Orders(job.hosted)
    try:
        if namespaces is None:
            servers = _fork_servers(job, prepared, control, orders)
        else:
            servers = _fork_isolated_servers(job, prepared, namespaces, control, orders, libraries)
    except BlockingIOError:
        control.send("failed", message=NO_PROCESS, hint=NO_PROCESS_HINT)
        processes.kill_descendants()
        return
    orders.forget()
    _supervise(job, servers, control, orders, prepared.pages)


def preload_no_more() -> None:
    """Takes the hook's library out of the variable of preloaded libraries. It is loaded for all ranks; other programs
    that they start have no use for it.
    """
    before = os.environ.pop(installed.PRELOAD, "").partition(":")[2]
    if before:
        os.environ[installed.PRELOAD] = before


def _begin_isolation(job: Job, builder: socket.socket, libraries: str) -> NamespacePreparation | None:
    """Starts to make namespaces, while the interpreter is prepared for the job."""
    if job.isolation != "none":
        with inputs.not_noted():  # what it does to find out what is possible
            return NamespacePreparation(job, builder, libraries)
    builder.close()
    return None


def _isolate(
    job: Job, preparation: NamespacePreparation | None, control: ControlSocket
) -> tuple[Job, RunNamespaces | None]:
    """Returns the job with the isolation that is possible, and the namespaces of the run. Raises CannotPrepare if what
    the user asks for is impossible.
    """
    reason, namespaces = "", None
    if preparation is not None:
        try:
            namespaces = preparation.finish()
        except CannotIsolate as error:
            if job.isolation == "full":
                raise CannotPrepare(
                    f"--isolation full: {error}",
                    "--isolation none runs all servers in the namespaces of this machine; docs/servers.md says what "
                    "is needed",
                ) from None
            reason = str(error)
    level, address = ("none", job.master_addr) if namespaces is None else ("full", isolation.host_name(0))
    control.send("isolation", level=level, reason=reason)
    return dataclasses.replace(job, isolation=level, master_addr=address), namespaces


class _Orders:
    """Pairs of sockets, one for each server: over them a server is told what the launcher says to it."""

    def __init__(self, servers: Sequence[int]) -> None:
        pairs = {server: socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET) for server in servers}
        self._ours = {server: ControlSocket(ours) for server, (ours, _) in pairs.items()}
        self._theirs = {server: ControlSocket(theirs) for server, (_, theirs) in pairs.items()}

    def of(self, server: int) -> ControlSocket:
        """Returns a server's end of its pair, and closes all others. Called in that server."""
        kept = self._theirs.pop(server)
        self.forget()
        for end in self._ours.values():
            end.close()
        return kept

    def forget(self) -> None:
        """Closes the servers' ends. Called in the forker, once all servers are forked."""
        for end in self._theirs.values():
            end.close()

    def send(self, server: int, message: dict[str, Any]) -> None:
        with contextlib.suppress(OSError):  # it has ended
            self._ours[server].send(**message)


def _fork_servers(job: Job, prepared: Prepared, control: ControlSocket, orders: _Orders) -> dict[int, int]:
    """Forks the servers. Returns their numbers by process id."""
    servers: dict[int, int] = {}
    for index in job.hosted:
        parent, pid = os.getpid(), os.fork()
        if pid == 0:
            server.main(job, index, prepared, control, orders.of(index), parent)
        servers[pid] = index
    return servers


def _fork_isolated_servers(
    job: Job,
    prepared: Prepared,
    namespaces: RunNamespaces,
    control: ControlSocket,
    orders: _Orders,
    libraries: str,
) -> dict[int, int]:
    seen = file_system.view(job, libraries)
    if job.inputs:
        control.send("visible", paths=inputs.visible_of_private(seen))
    admissions: list[Admission] = []
    for index in job.hosted:
        admission = Admission()
        if admission.fork(namespaces.user):
            for other in admissions:
                other.forget()
            with inputs.not_noted():  # a server's folders are not this machine's
                admission.enter(index, seen, namespaces.network(job.hosted.index(index)))
            namespaces.close()
            server.main(job, index, prepared, control, orders.of(index), 0)  # the forker is in another pid namespace
        admissions.append(admission)
    servers: dict[int, int] = {}
    for index, admission in zip(job.hosted, admissions, strict=True):
        try:
            servers[admission.finish()] = index
        except CannotIsolate as error:  # although another server could before
            print(f"emulated server {index}: {error}", file=sys.stderr)
            control.send("server_lost", server=index, code=1, signal=0)
    return servers


def _supervise(job: RunPlace, servers: dict[int, int], control: ControlSocket, orders: _Orders, pages: int) -> None:
    """Waits until the servers have ended or the launcher has gone. `servers`: their numbers by process id; `pages`: see
    Prepared.
    """
    wakeup, wake = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    poll = select.poll()
    poll.register(control.fileno(), select.POLLIN)
    poll.register(wakeup, select.POLLIN)
    while servers:
        for ended in processes.reap():  # first: a server may have ended before the handler was there
            if ended.pid == pages:
                how = f"signal {ended.signal}" if ended.signal else f"exit code {ended.code}"
                control.send("failed", message=f"the process that fills memory of ranks has ended ({how})", hint="")
            if ended.pid in servers:
                index = servers.pop(ended.pid)
                if ended.code or ended.signal:
                    control.send("server_lost", server=index, code=ended.code, signal=ended.signal)
        for descriptor, _ in poll.poll() if servers else ():
            if descriptor == wakeup:
                os.read(wakeup, 4096)
            elif not _obey(control, servers, orders):
                processes.kill_descendants()
                shutil.rmtree(job.runtime_dir, ignore_errors=True)  # the launcher cannot do it any more
                return
    processes.kill_descendants()
    control.send("done")


def _obey(control: ControlSocket, servers: dict[int, int], orders: _Orders) -> bool:
    """Receives one message of the launcher; returns False if the launcher has gone."""
    message = control.receive()
    if message is None:
        return False
    if message["event"] == "terminate":
        for pid in servers:
            os.kill(pid, signal.SIGTERM)
        return True
    if message["event"] in ("tell_end", "ask_memory"):
        orders.send(message["server"], message)
        return True
    raise ValueError(f"unknown message {message}")
