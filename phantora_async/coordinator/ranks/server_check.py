"""Finds out on which emulated server a process runs: it can only be a rank of that one."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence

from phantora_async.errors import ProtocolError

OWN = "self"


class ServerCheck:
    """An isolated server has a pid namespace of its own; the first rank that connects from it says which server it is.
    Without isolation, and on other machines, nothing is known.
    """

    def __init__(self, servers: Sequence[int]) -> None:
        """`servers`: the number of GPUs of each server."""
        self._server_of = [server for server, gpus in enumerate(servers) for _ in range(gpus)]
        self._servers: dict[int, int] = {}
        """The server of each pid namespace."""

    def check(self, pid: int, rank: int) -> None:
        """Raises ProtocolError if the process runs on another server than this rank."""
        namespace = _pid_namespace(pid)
        if not 0 <= rank < len(self._server_of) or namespace in (0, _pid_namespace(OWN)):
            return
        server = self._servers.setdefault(namespace, self._server_of[rank])
        if server != self._server_of[rank]:
            raise ProtocolError(rank, f"process {pid} says it is this rank, but runs on server {server}")


def _pid_namespace(pid: int | str) -> int:
    """The number of the process's pid namespace; 0 if it is not known."""
    with contextlib.suppress(OSError):  # it has ended, or /proc is hidden
        return os.stat(f"/proc/{pid}/ns/pid").st_ino
    return 0
