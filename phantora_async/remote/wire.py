"""What travels between machines. Every connection begins with an *opening* of fixed length, which proves that the other
side knows the run's token: kind, SHA-256 of the token, the machine's number, a process id. After it comes, by kind,

- RANK: the records of one rank, and its answers, as on the Unix socket;
- MACHINE: messages in JSON, one a line.

Nothing is encrypted: whoever reads the network can take the token from it.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import socket
import struct
from pathlib import Path
from typing import Any, NamedTuple

from phantora_async.errors import UsageError

RANK, MACHINE = b"phantora-rank-1\n", b"phantora-mach-1\n"
_OPENING = struct.Struct(">16s32sII")
NBYTES = _OPENING.size
TOKEN_VARIABLE = "PHANTORA_TOKEN"
SHORTEST_TOKEN = 16
KEEP_ALIVE_S = 10
"""After so long without a sign of the other machine, it is asked whether it is still there; four times."""
LONGEST_LINE = 1 << 24


class Opening(NamedTuple):
    kind: bytes
    machine: int
    pid: int
    """Of the rank, as its machine sees it; 0 if the connection is no rank's."""


def opening(kind: bytes, token: str, machine: int = 0, pid: int = 0) -> bytes:
    return _OPENING.pack(kind, hashlib.sha256(token.encode()).digest(), machine, pid)


def read_opening(data: bytes, token: str) -> Opening | None:
    """None if it is not an opening, or its token is another. Takes as long for every wrong token."""
    kind, digest, machine, pid = _OPENING.unpack(data)
    known = hmac.compare_digest(digest, hashlib.sha256(token.encode()).digest())
    return Opening(kind, machine, pid) if known and kind in (RANK, MACHINE) else None


def read_token(file: Path | None) -> str:
    """From the file, or from the environment; never from the command line, which every user of a machine can read.
    "" if there is none. Raises UsageError.
    """
    if file is None:
        token = os.environ.get(TOKEN_VARIABLE, "").strip()
    else:
        try:
            token = file.read_text().strip()
        except OSError as error:
            raise UsageError(f"--token-file {file}: {error.strerror or error}") from None
        except UnicodeDecodeError:
            raise UsageError(f"--token-file {file}: not text") from None
        if not token:
            raise UsageError(f"--token-file {file}: the file is empty")
    if token and len(token) < SHORTEST_TOKEN:
        raise UsageError(f"the token is too short: at least {SHORTEST_TOKEN} characters")
    return token


def address(text: str) -> tuple[str, int]:
    """``HOST:PORT``. Raises UsageError."""
    host, _, port = text.rpartition(":")
    if not host or not port.isdigit() or int(port) > 65_535:
        raise UsageError(f"{text}: expected HOST:PORT")
    return host.strip("[]"), int(port)


def prepare(end: socket.socket) -> None:
    """Small messages leave at once, and a machine that has vanished is noticed."""
    end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    end.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in ((socket.TCP_KEEPIDLE, KEEP_ALIVE_S), (socket.TCP_KEEPINTVL, KEEP_ALIVE_S // 2)):
        end.setsockopt(socket.IPPROTO_TCP, option, value)
    end.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 4)


def encode(event: str, **fields: Any) -> bytes:
    return json.dumps({"event": event, **fields}).encode() + b"\n"


def decode(line: bytes) -> dict[str, Any]:
    """Raises ValueError."""
    message = json.loads(line)
    if not isinstance(message, dict) or not isinstance(message.get("event"), str):
        raise ValueError("not a message")
    return message
