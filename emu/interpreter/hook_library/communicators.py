"""Tells the hook library who is in the communicators of a folded run."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from ctypes import c_char_p, c_uint32
from typing import Any

from .library import Library

_RANKS = ctypes.POINTER(c_uint32)


class CommunicatorCalls(Library):
    def __init__(self, path: str) -> None:
        super().__init__(path)
        self._comm_members = self._function("comm_members", None, c_char_p, _RANKS, c_uint32)
        self._messages_of = self._function("messages_of", None, c_uint32)
        self._split_members = self._function("split_members", None, _RANKS, c_uint32)

    def comm_members(self, unique_id: bytes, members: Sequence[int]) -> None:
        """Tells that the communicator that is made with this id of NCCL will have these world ranks, in its rank
        order."""
        self._comm_members(unique_id, _numbers(members), len(members))

    def messages_of(self, kind: int) -> None:
        """Tells what NCCL's sends and receives that this thread makes from now on are parts of: a gather or scatter
        (`records.MessageKind`); 0: nothing.
        """
        self._messages_of(kind)

    def split_members(self, members: Sequence[int], *, each_its_own: bool) -> None:
        """Splits that this thread makes from now on are for a group of these world ranks; none: no longer.
        `each_its_own`: every rank of the parent makes the group that it is in; else all make this one.
        """
        told = [int(each_its_own), len(members), *members] if members else []
        self._split_members(_numbers(told), len(told))


def _numbers(numbers: Sequence[int]) -> Any:
    return (c_uint32 * len(numbers))(*numbers)
