"""Defines the bytes that travel between machines, inside TLS (``keys``). A connection begins with an *opening* of fixed
length: kind, the machine's number, a process id. After it comes, by kind,

- RANK: the records of one rank, and its answers, as on the Unix socket;
- MACHINE: messages in JSON, one a line.
"""

from __future__ import annotations

import json
import math
import os
import socket
import struct
from pathlib import Path
from typing import Any, NamedTuple

from phantora_async.errors import UsageError

RANK, MACHINE = b"phantora-rank-3\n", b"phantora-mach-3\n"
_OPENING = struct.Struct(">16sII")
OPENING_NBYTES = _OPENING.size
TOKEN_VARIABLE = "PHANTORA_TOKEN"
LEAST_BITS = 80
"""The least entropy of a token in bits. A stranger may try tokens against a handshake that it has seen, 10 a second on
each core.
"""
MOST_TOKEN_NBYTES = 4096
MOST_HOST, MOST_PORT = 253, 65_535
MAKE_TOKEN = "make one: openssl rand -hex 32 > token"
KEEP_ALIVE_S = 10
"""The seconds without a sign of the other machine after which it is asked whether it is still there; four times."""
LONGEST_LINE = 1 << 24


class Opening(NamedTuple):
    kind: bytes
    machine: int
    pid: int
    """The process id of the rank, as its machine sees it; 0 if the connection is no rank's."""


def opening(kind: bytes, machine: int = 0, pid: int = 0) -> bytes:
    return _OPENING.pack(kind, machine, pid)


def read_opening(data: bytes) -> Opening | None:
    """The opening in these bytes; None if they are none."""
    kind, machine, pid = _OPENING.unpack(data)
    return Opening(kind, machine, pid) if kind in (RANK, MACHINE) else None


def read_token(file: Path | None) -> str:
    """Reads the token from the file, or from the environment; never from the command line, which every user of a
    machine can read. Returns "" if there is none. Raises UsageError.
    """
    if file is None:
        token = os.environ.get(TOKEN_VARIABLE, "").strip()
    else:
        try:
            with file.open("rb") as content:
                read = content.read(MOST_TOKEN_NBYTES + 1)
            token = read.decode().strip()
        except OSError as error:
            raise UsageError(f"--token-file {file}: {error.strerror or error}") from None
        except UnicodeDecodeError:
            raise UsageError(f"--token-file {file}: not text") from None
        if not token:
            raise UsageError(f"--token-file {file}: the file is empty")
        if len(read) > MOST_TOKEN_NBYTES:
            raise UsageError(f"--token-file {file}: more than {MOST_TOKEN_NBYTES} bytes, which is no token")
    if token and most_bits(token) < LEAST_BITS:
        raise UsageError("the token can be guessed: it is too short, or has too few different characters", MAKE_TOKEN)
    return token


def most_bits(token: str) -> float:
    """The largest entropy that a token can have, in bits: as if its characters were drawn at random from those that it
    has.
    """
    return len(token) * math.log2(max(1, len(set(token))))


def address(text: str, least_port: int = 1) -> tuple[str, int]:
    """The host and port in ``HOST:PORT``. Raises UsageError."""
    host, _, digits = text.rpartition(":")
    host = host[1:-1] if host.startswith("[") and host.endswith("]") else host
    port = int(digits) if digits.isascii() and digits.isdecimal() and len(digits) <= len(str(MOST_PORT)) else -1
    possible = bool(host) and host.isprintable() and " " not in host and len(host) <= MOST_HOST
    try:
        host.encode("idna")
    except UnicodeError:  # a part of the name is empty, or too long
        possible = False
    if not possible:
        raise UsageError(f"{text!r:.60}: expected HOST:PORT, the name or the address of a machine and a port")
    if not least_port <= port <= MOST_PORT:
        raise UsageError(f"{text!r:.60}: expected HOST:PORT, with a port from {least_port} to {MOST_PORT}")
    return host, port


def prepare(end: socket.socket | None) -> None:
    """Sets the socket's options: small messages leave at once, and a machine that has vanished is noticed. None: there
    is no socket.
    """
    if end is None:
        return
    end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    end.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in ((socket.TCP_KEEPIDLE, KEEP_ALIVE_S), (socket.TCP_KEEPINTVL, KEEP_ALIVE_S // 2)):
        end.setsockopt(socket.IPPROTO_TCP, option, value)
    end.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 4)


def encode(event: str, **fields: Any) -> bytes:
    return json.dumps({"event": event, **fields}).encode() + b"\n"


def decode(line: bytes) -> dict[str, Any]:
    """Decodes a message. Raises ValueError."""
    try:
        message = json.loads(line.decode())
    except RecursionError:
        raise ValueError("a message that is nested too deep") from None
    if not isinstance(message, dict) or not isinstance(message.get("event"), str):
        raise ValueError("not a message")
    return message


_NUMBER, _TEXT = (int,), (str,)
_MACHINE_SAYS: dict[str, dict[str, tuple[type, ...]]] = {
    "hello": {"version": _NUMBER, "name": _TEXT, "seat": _NUMBER},
    "threads": {"pid": _NUMBER, "threads": (dict, type(None))},
    "ready": {"torch": _TEXT, "python": _TEXT},
    "left_out": {"text": _TEXT},
    "isolation": {"level": _TEXT, "reason": _TEXT},
    "started": {"rank": _NUMBER, "server": _NUMBER, "pid": _NUMBER},
    "took": {"rank": _NUMBER, "memory": (list,)},
    "dismissed": {"rank": _NUMBER, "signal": _NUMBER},
    "exited": {"rank": _NUMBER, "server": _NUMBER, "code": _NUMBER, "signal": (int, type(None)), "untold": (bool,)},
    "command_ended": {"server": _NUMBER, "code": _NUMBER, "signal": _NUMBER},
    "server_lost": {"server": _NUMBER, "code": _NUMBER, "signal": _NUMBER},
    "failed": {"message": _TEXT, "hint": _TEXT},
    "lost": {"signal": _NUMBER},
    "done": {},
}
"""The messages that a machine sends to the coordinator, with the types of their fields: those of its forker
(``emu.contract.messages``), and its own.
"""


def check_machine_says(message: dict[str, Any]) -> None:
    """Raises ValueError unless the message is one of these, with all its fields."""
    expected = _MACHINE_SAYS.get(message["event"])
    if expected is None:
        raise ValueError(f"{message['event']!r:.40} is unknown")
    for name, kinds in expected.items():
        value = message.get(name)
        if name not in message or not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
            raise ValueError(f"{message['event']} with {name} = {value!r:.40}")
        if isinstance(value, list) and not all(isinstance(row, list) and _are_numbers(row) for row in value):
            raise ValueError(f"{message['event']} with {name} = {value!r:.40}")


def _are_numbers(row: list[Any]) -> bool:
    return all(type(value) is int for value in row)
