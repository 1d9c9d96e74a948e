"""Keeps what a rank tells of its modules: their names, the work that it launched for each in its last whole step, and
the memory of each at the peak.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from emu.contract import records
from emu.contract.records import HeldKind, OutsideKind, RecordError
from phantora_async.errors import ProtocolError

KINDS = frozenset(HeldKind)
MOST_NBYTES = 1 << 56
MOST_NAMED = 1 << 16
"""The most modules of a rank that are named."""


class Module(NamedTuple):
    path: tuple[str, ...]
    """The class of the outermost module, then the names of attributes that lead to this one."""
    kind: str
    """Its class; empty if it is none."""


OPTIMIZER = Module(("(optimizer)",), "")
NO_MODULE = Module(("(no module)",), "")
UNNAMED = Module(("(modules that are gone)",), "")


class ModuleLaunches:
    """The class holds one rank's modules, the launches of its last whole step and the holders of its peak."""

    __slots__ = ("_names", "counts", "held")

    def __init__(self) -> None:
        self._names: dict[int, Module] = {}
        self.counts: Sequence[records.ModuleCount] = ()
        self.held: dict[int, Sequence[records.ModuleHeld]] = {}
        """The bytes of the peak of each of its devices."""

    def name(self, record: records.Module) -> None:
        path, _, kind = record.payload.rstrip(b"\0").decode(errors="replace").partition("\n")
        if len(self._names) < MOST_NAMED:
            self._names[record.number] = Module(tuple(path.split("\t")), kind)

    def add(self, rank: int, record: records.ModuleCounts, check: Callable[[int, int], None]) -> None:
        """Takes the counts of a record in the place of earlier ones. `check`: raises ProtocolError for a key that the
        rank cannot know. Raises it also for a record shorter than it says.
        """
        try:
            counts = records.ModuleCount.decode_all(record.payload, 0, record.entries)
        except RecordError as error:
            raise ProtocolError(rank, str(error)) from None
        for one in counts:
            check(rank, one.key)
        self.counts = counts

    def hold(self, rank: int, record: records.ModuleMemory) -> None:
        """Takes the bytes of a peak in the place of earlier ones. Raises ProtocolError for a record shorter than it
        says.
        """
        try:
            held = records.ModuleHeld.decode_all(record.payload, 0, record.entries)
        except RecordError as error:
            raise ProtocolError(rank, str(error)) from None
        if any(one.held_as not in KINDS or one.nbytes > MOST_NBYTES for one in held):
            raise ProtocolError(rank, "MODULE_MEMORY: an entry of an unknown kind, or with too many bytes")
        self.held[record.device] = held

    def module(self, number: int) -> Module:
        """The module of the number, or what stands for none."""
        if number == OutsideKind.OPTIMIZER:
            return OPTIMIZER
        return self._names.get(number, UNNAMED) if number else NO_MODULE
