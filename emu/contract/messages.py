"""The control socket between the launcher and the forker with its servers: every packet is one JSON message. Requests
for a forker are such messages, too, with descriptors.
"""

from __future__ import annotations

import array
import json
import select
import socket
from collections.abc import Sequence
from typing import Any

LIMIT_NBYTES = 1 << 17
"""The limit of a message's length, in bytes: no message is as long. A seqpacket socket truncates silently, so a
receiver that gets this many bytes raises.
"""
MOST_DESCRIPTORS = 16
"""The most descriptors that come with a message."""


class ControlSocket:
    """One end of a SOCK_SEQPACKET pair. Packets are atomic, so the servers write to the forker's end without a lock."""

    def __init__(self, end: socket.socket) -> None:
        self._end = end

    def fileno(self) -> int:
        return self._end.fileno()

    def send(self, event: str, **fields: Any) -> None:
        """Sends a message. Raises BrokenPipeError if the other side has closed its end."""
        self._end.send(json.dumps({"event": event, **fields}).encode(), socket.MSG_NOSIGNAL)

    def send_with(self, descriptors: Sequence[int], event: str, **fields: Any) -> None:
        """Sends a message with descriptors. Raises OSError if the other side has closed its end."""
        rights = (socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", descriptors))
        packet = json.dumps({"event": event, **fields}).encode()
        self._end.sendmsg([packet], [rights] if descriptors else [], socket.MSG_NOSIGNAL)

    def receive_with(self) -> tuple[dict[str, Any] | None, list[int]]:
        """Returns the next message, as ``receive`` does, and the descriptors that came with it."""
        numbers = array.array("i")
        packet, parts, flags, _ = self._end.recvmsg(
            LIMIT_NBYTES, socket.CMSG_LEN(MOST_DESCRIPTORS * numbers.itemsize), socket.MSG_CMSG_CLOEXEC
        )
        for level, kind, data in parts:
            if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
                numbers.frombytes(data[: len(data) - len(data) % numbers.itemsize])
        if flags & (socket.MSG_CTRUNC | socket.MSG_TRUNC):
            raise ValueError("a message has come without its end or its descriptors")
        return _decoded(packet), list(numbers)

    def receive(self) -> dict[str, Any] | None:
        """Returns the next message; None after the last one, when the other side has closed its end."""
        return _decoded(self._end.recv(LIMIT_NBYTES))

    def idle(self) -> bool:
        """True if there is nothing to receive, not even the end."""
        poll = select.poll()
        poll.register(self._end, select.POLLIN)
        return not poll.poll(0)

    def closed(self) -> bool:
        """True if the other side has closed its end."""
        poll = select.poll()
        poll.register(self._end, select.POLLIN)
        return any(event & select.POLLHUP for _, event in poll.poll(0))

    def close(self) -> None:
        self._end.close()


def _decoded(packet: bytes) -> dict[str, Any] | None:
    """Returns the message of a packet; None of an empty one."""
    if not packet:
        return None
    if len(packet) == LIMIT_NBYTES:
        raise ValueError("a control message is longer than the protocol allows")
    message = json.loads(packet)
    if not isinstance(message, dict):
        raise ValueError(f"not a control message: {message!r}")
    return message
