"""Options for the display of a running job: the ranks on the terminal, and the live page."""

from __future__ import annotations

import errno
import importlib.util
import secrets
import socket

from phantora_async.config.config import Ui
from phantora_async.errors import EnvironmentUnusable, UsageError

MOST_PORT = 65_535


def shown_ranks_of(text: str, world_size: int) -> frozenset[int]:
    if text in ("all", "none"):
        return frozenset(range(world_size)) if text == "all" else frozenset()
    try:
        ranks = frozenset(int(part) for part in text.split(","))
    except ValueError:
        raise UsageError(f"--show-ranks {text}: expected ranks such as 0,3, or all, or none") from None
    if not all(0 <= rank < world_size for rank in ranks):
        raise UsageError(f"--show-ranks {text}: this run has ranks 0 to {world_size - 1}")
    return ranks


def ui_of(port: int | None) -> Ui | None:
    """The live page's address. The port is bound now, so that no other run gets it. Raises UsageError."""
    if port is None:
        return None
    if importlib.util.find_spec("aiohttp") is None:
        raise EnvironmentUnusable("--ui: the package aiohttp is missing", "pip install aiohttp")
    if not 0 <= port <= MOST_PORT:
        raise UsageError(f"--ui {port}: expected a port from 0 to {MOST_PORT}; 0 is any free one")
    try:
        listening = socket.create_server(("127.0.0.1", port))
    except OSError as error:
        why = "another program uses this port" if error.errno == errno.EADDRINUSE else error.strerror
        raise UsageError(f"--ui {port}: {why}", "choose another port, or any free one: --ui") from None
    return Ui(listening, secrets.token_urlsafe(24))
