"""Makes the records that mirrored ranks would have sent: their representative's records, with their own communicators,
places and peers.

A record that names nothing of this kind is the same object for all. Of records that tell about a process, or that ask
for what the representative is told, virtual time only needs the host time before them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from struct import pack
from typing import Any

from emu.contract import records
from emu.contract.folding import CannotFold, Folding
from emu.contract.records import DeviceKind, EndKind, NcclKind, ScopeKind
from phantora_async.errors import NotFoldable
from phantora_async.folding.root_parts import ONE_GIVES, RootParts
from phantora_async.ingest.communicators import UNIQUE_ID_NBYTES, Communicators, stated_members
from phantora_async.ingest.data_exchange import FOLLOWS
from phantora_async.ingest.messages import PARTS, kind_of, root_of
from phantora_async.ingest.uncomputed_reads import path_of
from phantora_async.virtual_time.facts import PAIRWISE, Comm, host_time

_NUMBERS = ("rank_number", "server_number", "comm_number", "device_number", "scoped_number")
"""The types of fields that are other numbers on another rank."""
_NUMBERED = {
    kind: fields
    for kind, entry in records.ENTRY_OF.items()
    if (fields := [(of, name) for of, name in entry.fields if of in _NUMBERS])
}
_OF_PROCESS = records.marked("PROCESS")
"""Records beside the op stream that describe a process, its files and its place on this machine. Mirrored ranks have
none.
"""
_OP = records.NcclOp
_CONNECTED = records.ConnectPeer


class _NotYet(Exception):
    """A communicator is not made yet: some of its members have processes that have not asked."""


class Mirror:
    """Translates a representative's records for each of the ranks that it plays."""

    def __init__(
        self,
        folding: Folding,
        played: Mapping[int, Sequence[int]],
        servers: tuple[int, ...],
        communicators: Communicators,
    ) -> None:
        """`played`: for each rank that has a process, the others whose records are wanted. `servers`: the number of
        GPUs of each server.
        """
        self._folding = folding
        self._played = played
        self._communicators = communicators
        self._seats = [(server, gpu) for server, gpus in enumerate(servers) for gpu in range(gpus)]
        """The server of each rank, and its GPU there."""
        self._held: dict[int, list[Any]] = {}
        """The records of each mirrored rank that wait for a communicator."""
        self._known: dict[tuple[int, int, int], Comm] = {}
        """The communicator that a played rank has, by the representative's communicator, its member and the rank that
        this member plays.
        """
        self._parts = RootParts()
        self._translations: dict[int, Callable[[int, int, Any], Any]] = {
            **dict.fromkeys(_NUMBERED, self._own_numbers),
            **dict.fromkeys(records.marked("HOST_TIME") & records.REPLY_OF.keys(), _host_time),
            records.COMM_INIT: self._init,
            records.COMM_SPLIT: self._split,
            records.CONNECT: self._connect,
            records.NCCL_LAUNCH: self._launch,
            records.NCCL_DATA: self._data,
            records.NCCL_SOURCES: self._sources,
            records.CHECKPOINT: _checkpoint,
            records.GPU_MEMORY: self._gpu_memory,
        }

    def records_of(self, rank: int, arrived: list[Any]) -> Iterator[tuple[int, list[Any]]]:
        """Yields the records that each mirrored rank sends now, after its representative has sent these. Raises
        NotFoldable.
        """
        for mirrored in self._played[rank]:
            held = self._held.pop(mirrored, None)
            yield mirrored, self._translated(rank, mirrored, arrived if held is None else held + arrived)

    def released(self) -> Iterator[tuple[int, list[Any]]]:
        """Yields the records that waited for communicators that have been made since."""
        for mirrored in list(self._held):
            rank, waiting = self._folding.representative(mirrored), self._held.pop(mirrored)
            if translated := self._translated(rank, mirrored, waiting):
                yield mirrored, translated

    def _translated(self, rank: int, mirrored: int, arrived: list[Any]) -> list[Any]:
        find = self._translations.get
        translated = []
        for place, record in enumerate(arrived):
            kind = record.kind
            if kind in _OF_PROCESS:
                continue
            translation = find(kind)
            if translation is not None:
                try:
                    record = translation(rank, mirrored, record)
                except _NotYet:
                    self._held[mirrored] = arrived[place:]
                    break
                except CannotFold as error:
                    raise NotFoldable.of(error, f"rank {mirrored} cannot be played by rank {rank}") from None
                if record is None:
                    continue
            translated.append(record)
            if self._parts.ready:
                translated += self._parts.ready
                self._parts.ready.clear()
        return translated

    def _gpu_memory(self, rank: int, mirrored: int, record: Any) -> Any:
        """A mirrored rank has processes of its own as the representative has."""
        if record.parent == rank + 1:
            record = record._replace(parent=mirrored + 1)
        return self._own_numbers(rank, mirrored, record)

    # ---- what takes the place of what ------------------------------------------------------------------------------

    def _comm(self, rank: int, mirrored: int, number: int) -> tuple[Comm, Comm]:
        """The representative's communicator, and the one that the mirrored rank has in its place."""
        own = self._communicators.of(rank, number)
        known = self._known.get((number, rank, mirrored))
        if known is None:
            known = self._communicators.like(own, self._folding.image(own.members, rank, mirrored, own.group))
            if known is None:
                raise _NotYet
            self._known[number, rank, mirrored] = known
        return own, known

    def _peer(self, rank: int, mirrored: int, own: Comm, its: Comm, op: int, peer: int) -> int:
        """The other side of a send or receive, or the root of another operation."""
        if kind_of(op) not in PAIRWISE:
            return peer
        root = root_of(op, own.rank_of[rank], peer)
        if root is not None:
            self._folding.check_root(own.members, root, rank, mirrored)
            return peer
        other = self._folding.mesh.moved(own.members[peer], rank, mirrored)
        if other not in its.rank_of:
            raise CannotFold(f"rank {rank} sends to or receives from rank {own.members[peer]}")
        return its.rank_of[other]

    def _device(self, rank: int, mirrored: int, device: int) -> int:
        """The device of the mirrored rank. A rank that uses the GPU of its own number does so everywhere: where it uses
        the mirrored rank's, that one uses the representative's.
        """
        own, its = self._seats[rank][1], self._seats[mirrored][1]
        apart, number = divmod(device, DeviceKind.APART)
        return apart * DeviceKind.APART + {own: its, its: own}.get(number, number)

    # ---- records ---------------------------------------------------------------------------------------------------

    def _own_numbers(self, rank: int, mirrored: int, record: Any) -> Any:
        """The record with the mirrored rank's own number, place, communicators and devices."""
        its = {}
        for of, name in _NUMBERED[record.kind]:
            if of == "rank_number":
                its[name] = mirrored
            elif of == "server_number":
                its[name], _ = self._seats[mirrored]
            elif of == "comm_number":
                its[name] = self._comm(rank, mirrored, getattr(record, name))[1].id
            elif of == "device_number" or record.scope == ScopeKind.DEVICE:
                its[name] = self._device(rank, mirrored, getattr(record, name))
        return record._replace(**its) if its else record

    def _init(self, rank: int, mirrored: int, record: records.CommInit) -> records.CommInit:
        stated = stated_members(record)
        if stated is None:
            raise CannotFold(f"it is not known who is in a communicator of {record.nranks} ranks")
        members = self._folding.image(stated.members, rank, mirrored, stated.group)
        group = self._folding.image(stated.group, rank, mirrored) if stated.group else ()
        place = members.index(mirrored)
        unique = record.payload[:UNIQUE_ID_NBYTES]
        if place == 0:  # this rank makes the id, which has its number
            unique = unique.replace(b"rank %d," % stated.members[0], b"rank %d," % mirrored, 1).rstrip(b"\0")
            unique = unique.ljust(UNIQUE_ID_NBYTES, b"\0")
        return record._replace(
            rank=place,
            device=self._device(rank, mirrored, record.device),
            payload=unique + pack(f"<{len(members) + len(group)}I", *members, *group),
        )

    def _split(self, rank: int, mirrored: int, record: records.CommSplit) -> records.CommSplit:
        _, parent = self._comm(rank, mirrored, record.parent)
        stated = stated_members(record)
        payload = record.payload
        if stated is not None and stated.each_its_own:
            members = self._folding.image(stated.members, rank, mirrored)
            payload = pack(f"<{2 + len(members)}I", 1, len(members), *members)
        return record._replace(parent=parent.id, color=-1, payload=payload)

    def _connect(self, rank: int, mirrored: int, record: records.Connect) -> records.Connect:
        own, its = self._comm(rank, mirrored, record.comm)
        peers = []
        for one in _CONNECTED.decode_all(record.payload, 0, record.npeers):
            op = (NcclKind.SEND if one.ends & EndKind.SENDS else NcclKind.RECV) | (one.ends & PARTS)
            peers.append(one._replace(peer=self._peer(rank, mirrored, own, its, op, one.peer)))
        return record._replace(comm=its.id, payload=b"".join(_CONNECTED.encode(*one) for one in peers))

    def _launch(self, rank: int, mirrored: int, record: records.NcclLaunch) -> records.NcclLaunch:
        payload = record.payload
        size = _OP.size()
        ops, parts, changed = [], [], False
        start = record.nops * size
        for op in _OP.decode_all(payload, 0, record.nops):
            own, its = self._comm(rank, mirrored, op.comm)
            peer = self._peer(rank, mirrored, own, its, op.op, op.peer)
            part = payload[start : start + op.data_nbytes] if op.data_nbytes not in (0, FOLLOWS) else b""
            start += len(part) + (-len(part) % 8)
            translated = op if own is its and peer == op.peer else op._replace(comm=its.id, peer=peer)
            if op.op in ONE_GIVES:
                places = own.rank_of[rank], its.rank_of[mirrored]
                translated, part = self._parts.of(mirrored, translated, part, *places)
            changed = changed or translated is not op
            ops.append(translated)
            parts.append(part)
        if not changed:
            return record
        encoded = b"".join(_OP.encode(*op) for op in ops)
        return record._replace(payload=encoded + b"".join(part + b"\0" * (-len(part) % 8) for part in parts))

    def _data(self, rank: int, mirrored: int, record: records.NcclData) -> records.NcclData | None:
        own, its = self._comm(rank, mirrored, record.comm)
        peer = self._peer(rank, mirrored, own, its, record.op, record.peer)
        translated = record._replace(comm=its.id, peer=peer)
        return self._parts.later(mirrored, translated) if record.op in ONE_GIVES else translated

    def _sources(self, rank: int, mirrored: int, record: records.NcclSources) -> records.NcclSources:
        own, its = self._comm(rank, mirrored, record.comm)
        if kind_of(record.op) == NcclKind.SEND:
            receiver = self._peer(rank, mirrored, own, its, record.op, record.place)
            return record._replace(comm=its.id, root=its.rank_of[mirrored], place=receiver)
        return record._replace(comm=its.id, place=its.rank_of[mirrored])


def _checkpoint(rank: int, mirrored: int, record: records.Checkpoint) -> records.Checkpoint:
    """The checkpoint of the mirrored rank: it would write a file of its own, if the file's path has the rank's
    number.
    """
    path = record.payload.rstrip(b"\0")
    its = path_of(path.decode(errors="surrogateescape"), rank, mirrored).encode(errors="surrogateescape")
    return record._replace(payload=its + b"\0" * (-len(its) % 8))


def _host_time(rank: int, mirrored: int, record: Any) -> Any:
    """The host time before a question that the representative alone asks."""
    if not record.host_ns:
        return None
    return host_time(record)
