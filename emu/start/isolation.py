"""Enters the namespaces of an emulated server; the levels are in ``emu.contract.isolation``."""

from __future__ import annotations

from ..contract.isolation import check


def enter(level: str, server: int) -> None:
    """Called in a server's process right after its fork, before it has threads or children."""
    check(level, server)
