"""Namespaces of an emulated server.

A level says what a server does not share with its neighbours. Only "none" exists so far: servers share the machine's
network, process ids and file system, and differ in their ranks alone.
"""

from __future__ import annotations

LEVELS = ("none",)


def enter(level: str, server: int) -> None:
    """In a server's process right after its fork, before it has threads or children. Raises ValueError for an unknown
    level.
    """
    if level not in LEVELS:
        raise ValueError(f"server {server}: unknown isolation {level!r}; known: {', '.join(LEVELS)}")


def host_name(level: str, server: int) -> str:
    """The address under which ranks of other servers reach this server. Raises ValueError for an unknown level."""
    if level not in LEVELS:
        raise ValueError(f"server {server}: unknown isolation {level!r}; known: {', '.join(LEVELS)}")
    return "127.0.0.1"
