"""Linux's namespaces: made, joined, and sent to another process. Python can make and join them from version 3.12 on."""

from __future__ import annotations

import array
import ctypes
import os
import socket

MOUNTS = 0x00020000
UTS = 0x04000000
IPC = 0x08000000
USER = 0x10000000
PID = 0x20000000
NET = 0x40000000

READY = b"ready"
"""Follows descriptors on a socket; also the answer of the process that joins the servers' networks."""
_MORE = b"more"
_DESCRIPTORS_A_MESSAGE = 200
"""Most descriptors in a message; Linux permits 253."""
_libc = ctypes.CDLL(None, use_errno=True)


def unshare(kinds: int, what: str) -> None:
    """Calls unshare(2). `what` is for the message of the OSError."""
    _check(_libc.unshare(kinds), f"cannot make {what}")


def join(descriptor: int, kind: int, what: str) -> None:
    """Calls setns(2). `what` is for the message of the OSError."""
    _check(_libc.setns(descriptor, kind), f"cannot join {what}")


def own(kind: str) -> int:
    """Returns a descriptor of this process's namespace of the kind `user`, `net`, `pid` ..."""
    return os.open(f"/proc/self/ns/{kind}", os.O_RDONLY | os.O_CLOEXEC)


def send(end: socket.socket, namespaces: list[int]) -> None:
    """Sends descriptors of namespaces over a SOCK_SEQPACKET socket."""
    for first in range(0, len(namespaces), _DESCRIPTORS_A_MESSAGE):
        part = array.array("i", namespaces[first : first + _DESCRIPTORS_A_MESSAGE])
        end.sendmsg([_MORE], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, part)])
    end.send(READY)


def receive(end: socket.socket) -> tuple[str, list[int]]:
    """Receives what `send` has sent: returns "" and the descriptors. If the other side said something else instead,
    returns its words, or `nothing` if it has ended, and no descriptors.
    """
    received: list[int] = []
    while True:
        said, descriptors, _, _ = socket.recv_fds(end, 1 << 12, _DESCRIPTORS_A_MESSAGE, socket.MSG_CMSG_CLOEXEC)
        received += descriptors
        if said == READY:
            return "", received
        if said != _MORE:
            for descriptor in received:
                os.close(descriptor)
            return said.decode(errors="replace") or "nothing", []


def _check(result: int, what: str) -> None:
    if result != 0:
        error = ctypes.get_errno()
        raise OSError(error, f"{what}: {os.strerror(error)}")
