"""Makes the form of a rank's op stream: the stream without what differs between ranks of one role, which is numbers of
ranks, communicators and recordings.

The form of a record is what another rank of the role would have sent in its place, so two ranks that do the same have
equal forms. Host time and peaks of memory are amounts, which are compared as such. How often PyTorch asks whether work
is complete depends on the answers, so such questions have no form. Segments have none either: when the hook library
closes one depends on this machine; nor has the end of communicators, whose order PyTorch leaves open.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from emu.contract import records
from emu.contract.folding import Folding
from emu.contract.records import DeviceKind, NcclKind, ScopeKind
from phantora_async.ingest.communicators import Communicators, stated_members
from phantora_async.ingest.messages import kind_of, root_of
from phantora_async.virtual_time.facts import DTYPE_NAMES, PAIRWISE, Comm, is_sleep
from phantora_async.wording import compact

Form = tuple[Any, ...]
_COMPARED = records.marked("ROLE") | records.marked("OWN")
_TEXTS = records.marked("TEXT")
_FIELDS = {
    kind: [(of, name) for of, name in entry.fields if name in entry.row and name not in ("qid", "drop")]
    for kind, entry in records.ENTRY_OF.items()
}
"""The type and name of the fields that a record's row has, without what differs between ranks."""
OWN_GPU = DeviceKind.APART - 1
"""The number in place of the number of the rank's own GPU."""


class StreamForm:
    """Makes forms: ``of`` gives the form that each of a rank's records, in their order, has on rank `to`."""

    def __init__(self, rank: int, to: int, folding: Folding, gpus: Sequence[int], communicators: Communicators) -> None:
        """`gpus`: the number of each rank's GPU on its server."""
        self.rank = rank
        self._to = to
        self._folding = folding
        self._gpu = gpus[rank]
        self._communicators = communicators
        self._last_recording = 0
        self._streams: dict[int, Form] = {}
        """By the stream's number: its device, and how many streams had been made there before. The default streams of
        all devices come first, so numbers depend on which device is the rank's own.
        """
        self._created: Counter[int] = Counter()
        """Streams, by device."""
        self._members: dict[int, Form] = {}
        """By communicator: the members of the one that `to` has in its place, and its number among theirs."""
        self._numbers: dict[str, Callable[[Any, int], Any]] = {
            "stream_number": lambda _, number: self.stream(number),
            "scoped_number": self._scoped,
            "recording_number": self._ago,
        }
        """The form of a field of this type, given the record and the field."""
        self._forms: dict[int, Callable[[Any], Form]] = {
            **dict.fromkeys(_COMPARED & records.marked("ROW"), self._row),
            records.EVENT_RECORD: self._event_record,
            records.NCCL_LAUNCH: self._launch,
            records.COMM_INIT: self._init,
            records.COMM_SPLIT: self._split,
            records.MEMORY: lambda one: (self._device(one.device),),
        }

    def of(self, record: Any) -> Form | None:
        """The form of the record; None: ranks of a role may differ in it. Raises CannotFold."""
        if record.kind == records.STREAM_CREATE:
            device = self._device(record.device)
            self._streams[record.stream] = device, self._created[device]
            self._created[device] += 1
            return None
        form = self._forms.get(record.kind)
        if form is not None:
            return record.kind, *form(record)
        return (record.kind,) if is_sleep(record) else None

    # ---- by kind ---------------------------------------------------------------------------------------------------

    def _event_record(self, record: records.EventRecord) -> Form:
        further = record.recording - self._last_recording
        self._last_recording = record.recording
        return self.stream(record.stream), further

    def stream(self, number: int) -> Form:
        """The form of the stream of that number."""
        return self._streams.get(number, (number,))

    def _row(self, record: Any) -> Form:
        """The form of a record of whose fields those matter that its row has."""
        fields = [(of, getattr(record, name)) for of, name in _FIELDS[record.kind]]
        form = tuple(self._numbers[of](record, value) if of in self._numbers else value for of, value in fields)
        return (*form, record.payload) if record.kind in _TEXTS else form

    def _ago(self, record: Any, recording: int) -> int:
        by_event = getattr(record, "scope", ScopeKind.EVENT) == ScopeKind.EVENT
        return self._last_recording - recording if by_event else 0

    def _scoped(self, record: Any, number: int) -> Any:
        if record.scope == ScopeKind.STREAM:
            return self.stream(number)
        return self._device(number) if record.scope == ScopeKind.DEVICE else 0

    def _device(self, device: int) -> int:
        return device + OWN_GPU - self._gpu if device % DeviceKind.APART == self._gpu else device

    def _comm(self, number: int) -> Form:
        known = self._members.get(number)
        if known is None:
            own = self._communicators.of(self.rank, number)
            image = self._folding.image(own.members, self.rank, self._to, own.group)
            known = self._members[number] = image, self._communicators.number_of(own)
        return known

    def _launch(self, record: records.NcclLaunch) -> Form:
        """The form of a launch. Sends and receives of a group go to their peers in any order: a program that goes
        through the ranks from 0 on sends to the others in an order that differs from rank to rank.
        """
        collectives: list[Form] = []
        messages: list[Form] = []
        for op in records.NcclOp.decode_all(record.payload, 0, record.nops):
            (messages if op.op in PAIRWISE else collectives).append(self._op(op))
        return self.stream(record.stream), *collectives, *sorted(messages)

    def _op(self, op: records.NcclOp) -> Form:
        peer = op.peer
        if kind_of(op.op) in PAIRWISE:
            comm = self._communicators.of(self.rank, op.comm)
            root = root_of(op.op, comm.rank_of[self.rank], peer)
            if root is not None:
                self._folding.check_root(comm.members, root, self.rank, self._to)
        if op.op in PAIRWISE:
            peer = self._folding.mesh.moved(comm.members[peer], self.rank, self._to)
        return self._comm(op.comm), op.seq, op.op, op.dtype, op.redop, op.count, peer, op.scale

    def _init(self, record: records.CommInit) -> Form:
        stated = stated_members(record)
        members = None if stated is None else self._folding.image(stated.members, self.rank, self._to, stated.group)
        return record.nranks, self._device(record.device), members

    def _split(self, record: records.CommSplit) -> Form:
        """The form of a split. All ranks are asked about each part, or each about its own."""
        stated = stated_members(record)
        members = () if stated is None else stated.members
        if stated is not None and stated.each_its_own and self.rank in members:
            members = self._folding.image(members, self.rank, self._to)
        return self._comm(record.parent), record.seq, members


def described(rank: int, record: Any, communicators: Communicators) -> str:
    """Describes the rank's call: ``all_reduce of 1,024 f32 on ranks 0-7``."""
    if record.kind == records.NCCL_LAUNCH:
        ops = records.NcclOp.decode_all(record.payload, 0, record.nops)
        return "; ".join(_call(op, communicators.of(rank, op.comm)) for op in ops)
    text = records.WORDS[record.kind][0]
    stated = stated_members(record) if record.kind in (records.COMM_INIT, records.COMM_SPLIT) else None
    return f"{text} of ranks {compact(stated.members)}" if stated is not None else text


def _call(op: records.NcclOp, comm: Comm) -> str:
    kind = kind_of(op.op)
    text = f"{NcclKind(kind).name.lower()} of {op.count:,} {DTYPE_NAMES[op.dtype]}"
    if kind == NcclKind.SEND:
        text += f" to rank {comm.members[op.peer]}"
    elif kind == NcclKind.RECV:
        text += f" from rank {comm.members[op.peer]}"
    return f"{text} on ranks {compact(comm.members)}"
