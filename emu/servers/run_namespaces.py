"""The namespaces of a run: its user namespace, and a net namespace for each server.

A short-lived process makes them while the forker prepares the interpreter for its job. It also tries to become a
server, so that what the kernel forbids is known before the run starts. The net namespaces then go to a process of the
command (`phantora_async.launch.server_network`), which joins them by a bridge.
"""

from __future__ import annotations

import contextlib
import os
import socket
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from ..contract import namespaces
from ..contract.job import Job
from ..contract.process_setup import adopt_orphans
from . import file_system, id_maps
from .admission import Admission, CannotIsolate

_READY, _GO = b"ready", b"go"
_SETTINGS = (
    ("/proc/sys/user/max_user_namespaces", "0", "user.max_user_namespaces is 0"),
    ("/proc/sys/kernel/unprivileged_userns_clone", "0", "kernel.unprivileged_userns_clone is 0"),
    (
        "/proc/sys/kernel/apparmor_restrict_unprivileged_userns",
        "1",
        "kernel.apparmor_restrict_unprivileged_userns is 1",
    ),
)
"""Settings that forbid user namespaces to ordinary users: file, value, words."""


@dataclass(slots=True)
class RunNamespaces:
    """The namespaces that the forker holds."""

    user: int
    bridge: int | None
    """The net namespace of the bridge, which exists as long as this descriptor; None if there is none."""
    networks: list[int]
    """The net namespaces of the servers that this forker starts; empty if servers have this machine's network."""

    def network(self, place: int) -> int | None:
        """Returns a server's net namespace. `place`: the server's index among those that this forker starts."""
        return self.networks[place] if self.networks else None

    def close(self) -> None:
        """Closes the descriptors. Called in a server, once it has entered, so that it keeps no way to other servers;
        and in the forker, after all servers.
        """
        for descriptor in (self.user, self.bridge, *self.networks):
            if descriptor is not None:
                os.close(descriptor)


class Preparation:
    """Namespaces in the making. `finish` waits for them."""

    def __init__(self, job: Job, network_builder: socket.socket, libraries: str) -> None:
        """Starts the process that makes them. To be called while this process has a single thread: it forks.
        `libraries`: see `file_system.View`.
        """
        self._builder = network_builder
        self._private = job.network == "private"
        self._ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        file_system.write_shared_files(job, job.network)
        seen = file_system.view(job, libraries)
        self._pid = os.fork()
        if self._pid == 0:
            self._ours.close()
            _make(theirs, network_builder, seen, job.hosted[0], len(job.hosted) if self._private else 0)
        theirs.close()
        self._error = ""
        try:
            said = self._ours.recv(1 << 12)
            if said == _READY:
                id_maps.write(self._pid)
                self._ours.send(_GO)
            else:
                self._error = said.decode(errors="replace")
        except OSError as error:
            self._error = f"cannot map users and groups: {error.strerror}"
            self._ours.shutdown(socket.SHUT_WR)

    def finish(self) -> RunNamespaces:
        """Waits for the namespaces and returns them. Raises CannotIsolate."""
        with self._ours, self._builder:
            error, descriptors = namespaces.receive(self._ours)
            os.waitpid(self._pid, 0)
            error = self._error or error
            if not error and self._private:
                answer = self._builder.recv(1 << 12)
                if answer != namespaces.READY:
                    error = answer.decode(errors="replace") or "the process that joins the networks ended"
            if error:
                raise CannotIsolate(error + forbidding_setting())
        user, *networks = descriptors
        bridge = networks.pop(0) if networks else None
        return RunNamespaces(user, bridge, networks)


def _make(forker: socket.socket, builder: socket.socket, seen: file_system.View, first: int, servers: int) -> NoReturn:
    """Makes the namespaces, tries them as those of the server `first`, and sends them. Runs in the short-lived process.
    The first network is the run's.
    """
    try:
        namespaces.unshare(namespaces.USER, "a user namespace")
        forker.send(_READY)
        if forker.recv(16) != _GO:
            os._exit(1)
        descriptors = [namespaces.own("user")]
        if servers:
            namespaces.unshare(namespaces.NET, "a net namespace")
            descriptors.append(namespaces.own("net"))
            for _ in range(servers):
                namespaces.unshare(namespaces.NET, "a net namespace")
                descriptors.append(namespaces.own("net"))
        _try(first, seen, descriptors[2] if servers else None)
        if servers:
            namespaces.send(builder, descriptors)
        namespaces.send(forker, descriptors)
    except BrokenPipeError:
        pass  # the forker has ended
    except (OSError, CannotIsolate) as error:
        _tell(forker, getattr(error, "strerror", None) or str(error))
    except BaseException as error:
        _tell(forker, f"{type(error).__name__}: {error}")
    os._exit(0)


def _tell(forker: socket.socket, text: str) -> None:
    with contextlib.suppress(BrokenPipeError):
        forker.send(text.encode())


def _try(server: int, seen: file_system.View, network: int | None) -> None:
    """Tries to make a server. Raises CannotIsolate if a process cannot become one."""
    adopt_orphans()
    admission = Admission()
    if admission.fork(None):
        admission.enter(server, seen, network)
        os._exit(0)
    os.waitpid(admission.finish(), 0)


def forbidding_setting() -> str:
    """Names the setting that forbids user namespaces: `` (user.max_user_namespaces is 0)``; "" if there is none."""
    for path, value, words in _SETTINGS:
        with contextlib.suppress(OSError):
            if Path(path).read_text().strip() == value:
                return f" ({words})"
    return ""
