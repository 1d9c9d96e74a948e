"""The control socket between the launcher and the forker with its servers: every packet is one JSON message."""

from __future__ import annotations

import json
import select
import socket
from typing import Any

LIMIT_NBYTES = 1 << 17
"""The limit of a message's length, in bytes: no message is as long. A seqpacket socket truncates silently, so a
receiver that gets this many bytes raises.
"""


class ControlSocket:
    """One end of a SOCK_SEQPACKET pair. Packets are atomic, so the servers write to the forker's end without a lock."""

    def __init__(self, end: socket.socket) -> None:
        self._end = end

    def fileno(self) -> int:
        return self._end.fileno()

    def send(self, event: str, **fields: Any) -> None:
        """Sends a message. Raises BrokenPipeError if the other side has closed its end."""
        self._end.send(json.dumps({"event": event, **fields}).encode(), socket.MSG_NOSIGNAL)

    def receive(self) -> dict[str, Any] | None:
        """Returns the next message; None after the last one, when the other side has closed its end."""
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
