"""Facts: the records of ranks as virtual time consumes them. A fact never changes once it has arrived.

A rank's log holds records as they came or, where the coordinator has resolved what they mean among ranks, the facts
below. All have ``kind``, ``site`` and ``host_ns``. Results of the simulation are never stored here, so that they can be
thrown away and computed again.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

from emu.contract import records
from emu.contract.records import MarkerKind, NcclKind

_DTYPES = {
    "i8": 1,
    "u8": 1,
    "i32": 4,
    "u32": 4,
    "i64": 8,
    "u64": 8,
    "f16": 2,
    "f32": 4,
    "f64": 8,
    "bf16": 2,
    "f8e4m3": 1,
    "f8e5m2": 1,
}
"""The name and size of each type in bytes, in the order of ncclDataType_t."""
DTYPE_NAMES, DTYPE_NBYTES = tuple(_DTYPES), tuple(_DTYPES.values())
REDOP_NAMES = ("sum", "prod", "max", "min", "avg", "premulsum")
"""The names of reductions, by ncclRedOp_t."""
PAIRWISE = (NcclKind.SEND, NcclKind.RECV)
ROOTED = (NcclKind.BROADCAST, NcclKind.REDUCE, NcclKind.GATHER, NcclKind.SCATTER)
REDUCING = (NcclKind.ALL_REDUCE, NcclKind.REDUCE_SCATTER, NcclKind.REDUCE)


@dataclass(frozen=True, slots=True, eq=False)
class Comm:
    """A communicator."""

    id: int
    members: tuple[int, ...]
    """The world ranks of the members, in the communicator's rank order."""
    devices: tuple[int, ...]
    """The number of each member's device on its server."""
    rank_of: dict[int, int]
    """The rank in the communicator, by world rank."""
    label: str
    """A name by which a person can recognise it, the same in every run."""
    callers: tuple[int, ...] | None = None
    """The members that have timelines of their own; None: all."""
    offsets: tuple[int, ...] = (0,)
    """The offsets of communicators that do the same at the same instants: see ``Timelines.offsets``."""
    group: tuple[int, ...] = ()
    """All members of the group, in folded runs, for a communicator that PyTorch makes for the messages of two of them.
    """


class Collective:
    """One collective, or one send with its receive: what its members agreed to do.

    ``ranks`` are the members' world ranks: the communicator's, or (sender, receiver). The facts of all members hold the
    same object. ``joined`` grows as their calls arrive, ``sites`` with it (where each of them called), and ``exchange``
    is set then. Everything else never changes. Sorting collectives gives the same order in every run.

    ``callers``: those of ``ranks`` that call it, because they have timelines of their own. ``offsets``: of groups that
    do the same at the same instants, see ``Timelines.offsets``.
    """

    __slots__ = (
        "callers",
        "comm",
        "count",
        "dtype",
        "exchange",
        "joined",
        "offsets",
        "op",
        "ranks",
        "redop",
        "root",
        "seq",
        "sites",
    )

    def __init__(
        self,
        comm: Comm,
        seq: int,
        op: int,
        dtype: int,
        redop: int,
        count: int,
        root: int,
        ranks: tuple[int, ...],
        callers: tuple[int, ...] | None = None,
        offsets: tuple[int, ...] = (0,),
    ) -> None:
        self.comm = comm
        self.seq = seq
        self.op = op
        self.dtype = dtype
        self.redop = redop
        self.count = count
        self.root = root
        self.ranks = ranks
        self.callers = ranks if callers is None else callers
        self.offsets = offsets
        self.exchange = False
        """True for a send if one of its kernels sends and receives at once. Final when both members have joined."""
        self.joined: list[int] = []
        self.sites: list[int] = []

    def __lt__(self, other: Collective) -> bool:
        mine = self.ranks, self.op == NcclKind.SEND, self.seq, self.comm.id
        return mine < (other.ranks, other.op == NcclKind.SEND, other.seq, other.comm.id)

    @property
    def nbytes(self) -> int:
        """The bytes of ``count`` elements, as NCCL's own size argument counts."""
        return self.count * DTYPE_NBYTES[self.dtype]

    def describe(self) -> str:
        """Describes the collective: ``all_reduce #12 of 1024 bf16 (sum) on comm world[8]``."""
        text = f"{NcclKind(self.op).name.lower()} #{self.seq} of {self.count} {DTYPE_NAMES[self.dtype]}"
        if self.op in PAIRWISE:
            text = f"send/recv{text.removeprefix('send')} from rank {self.ranks[0]} to rank {self.ranks[1]}"
            # Which of several communicators of the same ranks it is may be the very thing that differs.
            return f"{text} on {self.comm.label}" if self.comm.label.endswith(")") else text
        if self.op in REDUCING:
            text += f" ({REDOP_NAMES[self.redop] if self.redop < len(REDOP_NAMES) else self.redop})"
        if self.op in ROOTED:
            text += f" root rank {self.ranks[self.root]}"
        return f"{text} on {self.comm.label}"


class CommCreation:
    """A communicator in the making, or a connection in one: all members go on when the last has asked. Their facts hold
    the same object.
    """

    __slots__ = ("joined", "label", "members", "sites", "size")

    def __init__(self, label: str, size: int, members: tuple[int, ...] = ()) -> None:
        """`size`: the number of ranks that ask for it; `members`: all that would, if each had a timeline; () if that is
        not known.
        """
        self.label = label
        self.size = size
        self.members = members
        self.joined: list[int] = []
        self.sites: list[int] = []
        """The site at which each of them asked."""


class NcclKernelFact(NamedTuple):
    """The fact of an NCCL_LAUNCH, resolved: one kernel that takes part in one or several collectives."""

    kind: int
    site: int
    nbytes: int
    host_ns: int
    stream: int
    collectives: tuple[Collective, ...]


UNSEEN = (1 << 16) + 2
"""The kind of a fact that no record has."""


class UnseenFact(NamedTuple):
    """Time passes for the host that no record shows: it waited in a socket or for a file, or its process has ended and
    nobody has noticed yet.
    """

    kind: int
    site: int
    nbytes: int
    host_ns: int
    """The time that has passed."""

    @classmethod
    def of(cls, for_ns: int) -> UnseenFact:
        return cls(UNSEEN, 0, 0, for_ns)


_SLEEP_NBYTES = len(records.HostAdvance.encode(0))
"""The size of a HOST_ADVANCE that a rank has sent. Others stand for records of which virtual time needs only the host
time.
"""


def is_sleep(fact: Any) -> bool:
    """Returns true if the program slept in the time before this fact."""
    return bool(fact.kind == records.HOST_ADVANCE and fact.nbytes == _SLEEP_NBYTES)


def sleeps(fact: Any) -> bool:
    """Returns true if the host does nothing in the time before this fact, so that a slow host takes no longer."""
    return fact.kind == UNSEEN or is_sleep(fact)


def host_time(record: Any) -> records.HostAdvance:
    """The fact that only the host time before a record passes."""
    return records.HostAdvance(records.HOST_ADVANCE, record.site, record.nbytes, record.host_ns, b"")


def ends_step(fact: Any) -> bool:
    """Returns true if this fact or record is the end of a step."""
    return bool(fact.kind == records.MARKER and fact.marker == MarkerKind.STEP)


class CommCreationFact(NamedTuple):
    """The fact of a COMM_INIT or COMM_SPLIT, resolved; the question itself has been answered elsewhere."""

    kind: int
    site: int
    nbytes: int
    host_ns: int
    creation: CommCreation


class ConnectFact(NamedTuple):
    """One step of a CONNECT, resolved."""

    kind: int
    site: int
    nbytes: int
    host_ns: int
    creations: tuple[CommCreation, ...]
    """The connections that are made in this step: two at most."""
    waits: bool
    """True if the host goes on when all of them are made; false if it only takes part."""
    further: int
    """The number of steps of the CONNECT after this one."""
