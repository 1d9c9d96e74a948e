"""Lets a process become an isolated server.

Namespaces of mounts, processes and names belong to the run's user namespace, the server's user namespace lies below it:
so a server, even root's, can undo none of its mounts and change nothing in its network.

A usher stands between the forker and each server. It joins the run's user namespace, makes the server's pid namespace,
forks the server as that namespace's first process, gives the server's user namespace its ids, and ends. The forker
cannot do this itself: it could not return from the pid namespace, and only a process in the run's user namespace may
give ids to the one below. The server, an orphan then, becomes the forker's child.
"""

from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import NoReturn

from ..contract import isolation, namespaces
from . import file_system, id_maps, linux, system_calls

FIRST_FREE_PORT = Path("/proc/sys/net/ipv4/ip_unprivileged_port_start")
_READY, _GO = b"ready", b"go"


class CannotIsolate(Exception):
    """Raised if servers cannot have namespaces of their own. The message says why, in one line."""


class Admission:
    """A server's way into its namespaces: `fork`, then `enter` in the server and `finish` in the forker."""

    def __init__(self) -> None:
        self._ours, self._theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        """The forker's end; the usher's and the server's."""
        self._entered, self._enter = -1, -1
        """A pipe from the server to its usher."""
        self._usher = -1

    def fork(self, user: int | None) -> bool:
        """Forks the usher, and the server from it; True in the server. `user`: the run's user namespace, None if this
        process is in it.
        """
        self._usher = os.fork()
        if self._usher:
            self._theirs.close()
            return False
        self._ours.close()
        self._entered, self._enter = os.pipe2(os.O_CLOEXEC)
        try:
            if user is not None:
                namespaces.join(user, namespaces.USER, "the run's user namespace")
            namespaces.unshare(namespaces.PID, "a pid namespace")
            server = os.fork()
            if server:
                self._usher_in(server)
        except OSError as error:
            self._theirs.send(_words(error))
            os._exit(1)
        os.close(self._entered)
        return True

    def forget(self) -> None:
        """Closes the forker's end, which this process has inherited. Called in another server."""
        self._ours.close()

    def _usher_in(self, server: int) -> NoReturn:
        os.close(self._enter)
        said = os.read(self._entered, 1 << 12)
        if said == _READY:
            id_maps.write(server)
            self._theirs.send(b"%d" % server)
        else:
            self._theirs.send(said or b"a server ended before it had started")
        os._exit(0)

    def enter(self, index: int, seen: file_system.View, network: int | None) -> None:
        """Makes this process the server: `index` is its number, `network` its net namespace, None for this machine's.
        Called in the server. Ends the process if it cannot enter.
        """
        try:
            _enter(index, seen, network)
        except OSError as error:
            os.write(self._enter, _words(error))
            os._exit(1)
        os.write(self._enter, _READY)
        os.close(self._enter)
        with self._theirs:
            if self._theirs.recv(16) != _GO:
                os._exit(1)  # the forker has ended
        if network is not None:
            system_calls.close_other_sockets()
        if os.geteuid() != 0:
            linux.drop_capabilities()
        system_calls.protect_memory()

    def finish(self) -> int:
        """Returns the server's process id, once it has entered. Called in the forker, which adopts orphans. Raises
        CannotIsolate.
        """
        with self._ours:
            said = self._ours.recv(1 << 12)
            os.waitpid(self._usher, 0)
            if not said.isdigit():
                raise CannotIsolate(said.decode(errors="replace") or "a server's usher ended")
            self._ours.send(_GO, socket.MSG_NOSIGNAL)
        return int(said)


def _words(error: OSError) -> bytes:
    words = str(error.strerror or error)
    return (f"cannot use {error.filename}: {words}" if error.filename else words).encode()


def _enter(index: int, seen: file_system.View, network: int | None) -> None:
    if network is not None:
        namespaces.join(network, namespaces.NET, "a net namespace")
        FIRST_FREE_PORT.write_text("0")
    kinds = namespaces.MOUNTS | namespaces.UTS | namespaces.IPC
    namespaces.unshare(kinds, "mount, uts and ipc namespaces")
    socket.sethostname(isolation.host_name(index))
    file_system.enter(seen, index, own_network=network is not None)
    namespaces.unshare(namespaces.USER | namespaces.MOUNTS, "a server's user namespace")
