"""Sends and receives that are parts of a gather or scatter, as the hook library tells them in folded runs."""

from __future__ import annotations

from emu.contract.records import MessageKind, NcclKind

PARTS = MessageKind.OF_GATHER | MessageKind.OF_SCATTER


def kind_of(op: int) -> int:
    """The operation itself."""
    return op & ~PARTS


def root_of(op: int, own: int, peer: int) -> int | None:
    """The place in the communicator of the gather's or scatter's root; None: the operation is a part of neither.
    `own`: the caller's place.
    """
    if op & MessageKind.OF_GATHER:
        return own if kind_of(op) == NcclKind.RECV else peer
    if op & MessageKind.OF_SCATTER:
        return own if kind_of(op) == NcclKind.SEND else peer
    return None
