"""What emulated servers do not share with each other, by level.

Only "none" exists so far: servers share the machine's network, process ids and file system.
"""

from __future__ import annotations

LEVELS = ("none",)


def host_name(level: str, server: int) -> str:
    """The address at which ranks of other servers find this one. Raises ValueError for an unknown level."""
    check(level, server)
    return "127.0.0.1"


def check(level: str, server: int) -> None:
    """Raises ValueError for an unknown level."""
    if level not in LEVELS:
        raise ValueError(f"server {server}: unknown isolation {level!r}; known: {', '.join(LEVELS)}")
