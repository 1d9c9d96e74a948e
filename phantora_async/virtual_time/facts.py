"""What ranks said, as virtual time consumes it: immutable once it has arrived.

A rank's log holds tuples that begin alike: ``(kind, site, nbytes, host_ns, ...)``, records as they came or, where the
coordinator has resolved what they mean among ranks, the facts below. Nothing that the simulation finds out is stored
here, so that it can be thrown away and found out again.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from emu.contract.records import NcclKind

DTYPE_NBYTES = (1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1)
"""By ncclDataType_t: i8 u8 i32 u32 i64 u64 f16 f32 f64 bf16 f8e4m3 f8e5m2."""
DTYPE_NAMES = ("i8", "u8", "i32", "u32", "i64", "u64", "f16", "f32", "f64", "bf16", "f8e4m3", "f8e5m2")
REDOP_NAMES = ("sum", "prod", "max", "min", "avg", "premulsum")
PAIRWISE = (NcclKind.SEND, NcclKind.RECV)
ROOTED = (NcclKind.BROADCAST, NcclKind.REDUCE, NcclKind.GATHER, NcclKind.SCATTER)
REDUCING = (NcclKind.ALL_REDUCE, NcclKind.REDUCE_SCATTER, NcclKind.REDUCE)


@dataclass(frozen=True, slots=True, eq=False)
class Comm:
    """A communicator: its members' world ranks in the communicator's rank order."""

    id: int
    members: tuple[int, ...]
    devices: tuple[int, ...]
    """Each member's device number on its server."""
    place: dict[int, int]
    """World rank -> rank in the communicator."""
    label: str
    """What a person can recognise it by, the same in every run."""


class Collective:
    """One collective, or one send with its receive: what its members agreed to do.

    ``ranks`` are the members' world ranks: the communicator's, or (sender, receiver). Two members are equal objects in
    every log, so identity is the match. ``joined`` grows as facts arrive, and ``sites`` with it: where each of them
    called. Everything else never changes. Their order is the same in every run.
    """

    __slots__ = ("comm", "count", "dtype", "joined", "op", "ranks", "redop", "root", "seq", "sites")

    def __init__(
        self, comm: Comm, seq: int, op: int, dtype: int, redop: int, count: int, root: int, ranks: tuple[int, ...]
    ) -> None:
        self.comm = comm
        self.seq = seq
        self.op = op
        self.dtype = dtype
        self.redop = redop
        self.count = count
        self.root = root
        self.ranks = ranks
        self.joined: list[int] = []
        self.sites: list[int] = []

    def __lt__(self, other: Collective) -> bool:
        mine = self.ranks, self.op == NcclKind.SEND, self.seq, self.comm.id
        return mine < (other.ranks, other.op == NcclKind.SEND, other.seq, other.comm.id)

    @property
    def nbytes(self) -> int:
        """Bytes of ``count`` elements: what NCCL's own size argument says."""
        return self.count * DTYPE_NBYTES[self.dtype]

    @property
    def arrivals(self) -> int:
        """How many launches take part; a rank that sends to itself takes part twice."""
        return len(self.ranks)

    def describe(self) -> str:
        """``all_reduce #12 of 1024 bf16 (sum) on comm world[8]``"""
        text = f"{NcclKind(self.op).name.lower()} #{self.seq} of {self.count} {DTYPE_NAMES[self.dtype]}"
        if self.op in PAIRWISE:
            return f"send/recv{text.removeprefix('send')} from rank {self.ranks[0]} to rank {self.ranks[1]}"
        if self.op in REDUCING:
            text += f" ({REDOP_NAMES[self.redop] if self.redop < len(REDOP_NAMES) else self.redop})"
        if self.op in ROOTED:
            text += f" root rank {self.ranks[self.root]}"
        return f"{text} on {self.comm.label}"


class CommCreation:
    """Members of a communicator to be: all go on when the last has come. Identity is the match."""

    __slots__ = ("joined", "label", "sites", "size")

    def __init__(self, label: str, size: int) -> None:
        self.label = label
        self.size = size
        self.joined: list[int] = []
        self.sites: list[int] = []
        """Where each of them asked."""


class NcclKernelFact(NamedTuple):
    """NCCL_LAUNCH, resolved: one kernel that takes part in several meetings."""

    kind: int
    site: int
    nbytes: int
    host_ns: int
    stream: int
    collectives: tuple[Collective, ...]


class CommCreationFact(NamedTuple):
    """COMM_INIT or COMM_SPLIT, resolved; the question itself has been answered elsewhere."""

    kind: int
    site: int
    nbytes: int
    host_ns: int
    creation: CommCreation
