"""What work costs, known to all ranks: a table in a mapped file that the coordinator alone writes.

Layout and protocol: COST_HEADER and COST_ENTRY of records.def. A reader may look at any time, so an entry's key is
written last, as one aligned 64-bit store.
"""

from __future__ import annotations

import mmap
import os
from dataclasses import dataclass
from pathlib import Path

from emu.contract import records
from emu.contract.records import CostEntry, CostHeader, RecordError
from profiles import Cost, CostModel, Source

DEFAULT_CAPACITY = 1 << 16
MAX_LOAD = 0.75


@dataclass(slots=True)
class Unrecognised:
    """Signatures that the cost model does not recognise, for one reason."""

    signatures: int
    example: str
    """The first of them in alphabetical order: it does not depend on which rank asked first."""


class CostTable:
    """The shared file, created empty. One writer; closes with ``close``."""

    def __init__(self, path: Path, capacity: int = DEFAULT_CAPACITY) -> None:
        if capacity & (capacity - 1):
            raise ValueError(f"capacity {capacity} is not a power of two")
        self.capacity = capacity
        self.used = 0
        nbytes = len(CostHeader.encode(0, 0, 0)) + capacity * CostEntry.size()
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            os.ftruncate(descriptor, nbytes)
            self._file = mmap.mmap(descriptor, nbytes)
        finally:
            os.close(descriptor)
        header = CostHeader.encode(records.VERSION, CostEntry.size(), capacity)
        self._file[: len(header)] = header
        self._first = len(header)
        self._words = memoryview(self._file).cast("Q")

    def write(self, key: int, cost: Cost) -> bool:
        """Publishes a cost under its key. False if the table is full: ranks then ask, which is slower but right."""
        if self.used >= self.capacity * MAX_LOAD:
            return False
        slot = key & (self.capacity - 1)
        while (found := self._words[self._word(slot)]) and found != key:
            slot = (slot + 1) & (self.capacity - 1)
        if found:
            return True
        start = self._first + slot * CostEntry.size()
        entry = CostEntry.encode(0, cost.solo_ns, cost.contended_ns, cost.flops, int(cost.source), 0)
        self._file[start + 8 : start + CostEntry.size()] = entry[8:]
        self._words[self._word(slot)] = key
        self.used += 1
        return True

    def _word(self, slot: int) -> int:
        return int(self._first + slot * CostEntry.size()) // 8

    def close(self) -> None:
        self._words.release()
        self._file.close()


class Costs:
    """Answers COST: each signature is asked of the model once, for all ranks."""

    def __init__(self, model: CostModel, table: CostTable) -> None:
        self._model = model
        self._table = table
        self._known: dict[int, tuple[str, Cost]] = {}
        self.unrecognised: dict[str, Unrecognised] = {}
        """By what the model does not know. They cost an estimate."""

    def answer(self, ask: records.Cost) -> bytes:
        """The encoded COST_OF, its entry in the table already.

        Raises RecordError for a key that is 0 or stands for two signatures. Every signature has a cost.
        """
        signature = ask.payload.rstrip(b"\0").decode(errors="replace")
        known = self._known.get(ask.key)
        if known is None:
            if not ask.key:
                raise RecordError("COST with key 0")
            cost = self._model.cost(signature)
            self._known[ask.key] = signature, cost
            if cost.source is Source.UNRECOGNISED:
                self._note_unrecognised(signature, cost.unknown)
            self._table.write(ask.key, cost)
        else:
            other, cost = known
            if other != signature:
                raise RecordError(f"key {ask.key:#x} stands for {other!r} and for {signature!r}")
        return records.CostOf.encode(ask.qid, cost.solo_ns, cost.contended_ns, cost.flops, int(cost.source), 0)

    def _note_unrecognised(self, signature: str, reason: str) -> None:
        noted = self.unrecognised.setdefault(reason, Unrecognised(0, signature))
        noted.signatures += 1
        noted.example = min(noted.example, signature)
