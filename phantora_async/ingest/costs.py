"""Kernel costs for all ranks: a table in a mapped file, which only the coordinator writes, and answers to COST.

Layout and protocol: COST_HEADER and COST_ENTRY of records.def. A rank may read at any time, so an entry's key is
written last, as one aligned 64-bit store.
"""

from __future__ import annotations

import mmap
import os
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from emu.contract import records
from emu.contract.records import CostEntry, CostHeader, RecordError
from phantora_async.errors import ProtocolError
from profiles import Cost, CostModel, Source

CAPACITY = 1 << 16
MAX_LOAD = 0.75
LEAVING = ("copy;h2d", "copy;d2h", "copy;p2p")
"""The beginnings of signatures of copies from or to the host or another GPU."""
_KEY_NBYTES = 8
"""COST_ENTRY begins with its key."""


@dataclass(slots=True)
class Unrecognised:
    """The signatures that the cost model does not recognise, for one reason."""

    signatures: int
    example: str
    """The first of these signatures in alphabetical order: it does not depend on which rank asked first."""
    at_least: bool = False
    """True if the costs of some of them are lower bounds."""


class CostTable:
    """The shared file with costs, created empty."""

    def __init__(self, path: Path, capacity: int = CAPACITY) -> None:
        """`capacity`: a power of two."""
        self._capacity = capacity
        self._used = 0
        nbytes = len(CostHeader.encode(0, 0, 0)) + capacity * CostEntry.size()
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            os.posix_fallocate(descriptor, 0, nbytes)  # where the disk is full, writing to a mapped hole ends a process
            self._file = mmap.mmap(descriptor, nbytes)
        except OSError as error:
            raise OSError(error.errno, os.strerror(error.errno or 0), str(path)) from None
        finally:
            os.close(descriptor)
        header = CostHeader.encode(records.VERSION, CostEntry.size(), capacity)
        self._file[: len(header)] = header
        self._first = len(header)
        self._words = memoryview(self._file).cast("Q")

    def write(self, key: int, cost: Cost, leaves: bool = False) -> bool:
        """Publishes a cost under its key. Returns false if the table is full: ranks then ask each time, which is
        slower. `leaves`: see ``Priced``.
        """
        if self._used >= self._capacity * MAX_LOAD:
            return False
        slot = key & (self._capacity - 1)
        while (found := self._words[self._word(slot)]) and found != key:
            slot = (slot + 1) & (self._capacity - 1)
        if found:
            return True
        start = self._first + slot * CostEntry.size()
        entry = CostEntry.encode(0, *_answer(cost, leaves))
        self._file[start + _KEY_NBYTES : start + CostEntry.size()] = entry[_KEY_NBYTES:]
        self._words[self._word(slot)] = key
        self._used += 1
        return True

    def _word(self, slot: int) -> int:
        return int(self._first + slot * CostEntry.size()) // 8


class Priced(NamedTuple):
    signature: str
    cost: Cost

    @property
    def leaves(self) -> bool:
        """True for a copy from or to the host or another GPU."""
        return self.signature.startswith(LEAVING)


class Costs:
    """Answers COST records. Each signature is priced once, for all ranks."""

    def __init__(self, model: CostModel, table: CostTable | None) -> None:
        """`table`: None if no rank asks."""
        self._model = model
        self._table = table
        self.known: dict[int, Priced] = {}
        """The signatures and costs by key."""

    def answer(self, ask: records.Cost) -> bytes:
        """The encoded COST_OF. Its entry is in the table already.

        Raises RecordError for a key that is 0, or that two ranks ask about with two signatures. A rank that finds the
        key in the table does not ask: two signatures of one key would share a cost unseen. Keys have 64 bits, so a
        million signatures have such a pair once in thirty million runs. Every signature has a cost.
        """
        signature = ask.payload.rstrip(b"\0").decode(errors="replace")
        known = self.known.get(ask.key)
        if known is None:
            if not ask.key:
                raise RecordError("COST with key 0")
            known = Priced(signature, self._model.cost(signature))
            self.add(ask.key, known)
            if self._table is not None:
                self._table.write(ask.key, known.cost, known.leaves)
        elif known.signature != signature:
            raise RecordError(f"key {ask.key:#x} stands for {known.signature!r} and for {signature!r}")
        return records.CostOf.encode(ask.qid, *_answer(known.cost, known.leaves))

    def add(self, key: int, priced: Priced) -> None:
        """Records the signature and the cost that the key stands for."""
        self.known[key] = priced

    @property
    def unrecognised(self) -> dict[str, Unrecognised]:
        """The unrecognised signatures by what the model does not know of them; their costs are estimates. A kernel for
        which a rank asked again with its operands counts as the signature with operands.
        """
        again = {without_operands(one.signature) for one in self.known.values()}
        found: dict[str, Unrecognised] = {}
        for signature, cost in self.known.values():
            if cost.source is not Source.UNRECOGNISED or signature in again:
                continue
            noted = found.setdefault(cost.unknown, Unrecognised(0, signature, cost.at_least))
            noted.signatures += 1
            noted.example = min(noted.example, signature)
            noted.at_least |= cost.at_least
        return found

    def check(self, rank: int, key: int) -> None:
        """Raises ProtocolError if no rank has asked for the cost of this key: then its work is not known."""
        if key not in self.known:
            raise ProtocolError(rank, f"work of key {key:#x}, whose cost no rank has asked for")

    def launches(self, rank: int, record: records.SegmentContent) -> Counter[int]:
        """The launches of a segment, by key. Raises ProtocolError."""
        try:
            entries = records.SegmentCost.decode_all(record.payload, 0, record.entries)
        except RecordError as error:
            raise ProtocolError(rank, str(error)) from None
        for entry in entries:
            if entry.key:  # 0: host functions
                self.check(rank, entry.key)
        return Counter({entry.key: entry.launches for entry in entries})

    def priced(self, key: int) -> Priced:
        """The cost that was answered for this key. Raises KeyError for one that no rank has asked for."""
        return self.known[key]


def without_operands(signature: str) -> str:
    """The signature without operands that a rank asks first, if `signature` is the one that it asks next; "" for all
    other signatures.
    """
    head, _, rest = signature.partition(";")
    return f"kernel;{rest.rsplit(';', 2)[0]}" if head == "sized" else ""


def _answer(cost: Cost, leaves: bool) -> tuple[int, int, float, int, int, int, int]:
    """The fields that COST_OF and COST_ENTRY have in common."""
    power, clocked = round(1000 * cost.draw.power), round(1000 * cost.draw.clocked)
    return cost.solo_ns, cost.contended_ns, cost.flops, int(cost.source), power, clocked, int(leaves)
