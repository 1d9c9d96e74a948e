"""The control socket: one JSON message a packet, between the launcher and the forker with its servers."""

from __future__ import annotations

import json
import select
import socket
from typing import Any

LIMIT_NBYTES = 1 << 17
"""Above any message we send; a seqpacket socket truncates silently, so receivers compare."""


class ControlSocket:
    """One end of a SOCK_SEQPACKET pair. Packets are atomic, so the servers share the forker's end without a lock."""

    def __init__(self, end: socket.socket) -> None:
        self._end = end

    def fileno(self) -> int:
        return self._end.fileno()

    def send(self, event: str, **fields: Any) -> None:
        """Raises BrokenPipeError if the other side has gone."""
        self._end.send(json.dumps({"event": event, **fields}).encode(), socket.MSG_NOSIGNAL)

    def receive(self) -> dict[str, Any] | None:
        """The next message, None at its end."""
        packet = self._end.recv(LIMIT_NBYTES)
        if not packet:
            return None
        if len(packet) == LIMIT_NBYTES:
            raise ValueError("a control message is longer than the protocol allows")
        message = json.loads(packet)
        if not isinstance(message, dict):
            raise ValueError(f"not a control message: {message!r}")
        return message

    def idle(self) -> bool:
        """Is there nothing to receive, not even the end?"""
        poll = select.poll()
        poll.register(self._end, select.POLLIN)
        return not poll.poll(0)

    def closed(self) -> bool:
        """Has the other side gone?"""
        poll = select.poll()
        poll.register(self._end, select.POLLIN)
        return any(event & select.POLLHUP for _, event in poll.poll(0))

    def close(self) -> None:
        self._end.close()
