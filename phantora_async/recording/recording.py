"""Reads a recording: checks it, and makes it ready to be executed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import orjson
from numpy.typing import NDArray

from emu.contract import records
from emu.contract.records import RecordError
from formats.files import MOST_DATA_NBYTES, read_bytes
from phantora_async.ingest.costs import Priced
from phantora_async.recording.checks import MOST_NS, check_call, check_comm, check_folding, check_members, check_rows
from phantora_async.recording.given_answers import RecordedAnswers, recorded_answers
from phantora_async.recording.history import ENTRY, Dictionary, dictionary
from phantora_async.recording.plain import PlainError, from_plain
from phantora_async.recording.recorder import FILE
from phantora_async.recording.rows import COUNTERS, ROW, Call, kernel_launches
from phantora_async.recording.store import Damaged, Reader
from phantora_async.run_spec import MachineView
from phantora_async.virtual_time import Comm, Timelines
from profiles import Cost

MOST_RANKS = 1 << 17
MOST_ENTRIES = 1 << 24


class Creation(NamedTuple):
    """A communicator that ranks ask for."""

    label: str
    members: tuple[int, ...]
    """All ranks that ask for it, including those that share timelines."""


class Part(NamedTuple):
    """The data of a rank that does what a recorded rank (``of``) did, with the numbers that it has in place of that
    one's.
    """

    of: int
    comms: list[int]
    """The ids of its communicators, in the order of their use."""
    creations: list[int]
    others: int
    """Its index in ``Recast.others``, counted from 1; 0: the recorded kernels."""


class Recast(NamedTuple):
    """The tables to which rows refer after ``Recording.recast``."""

    comms: dict[int, Comm]
    creations: list[Creation]
    kernels: list[tuple[Call, ...]]
    sleeps: list[OutsideSleep]
    others: list[dict[int, int]]
    """The numbers of kernels in place of recorded ones."""
    warnings: list[tuple[str, tuple[int, ...], int]]
    """Each text with the ranks that gave it equally often, and how often they did together."""
    connects: bool
    """False: connections of messages, and who waits for them, are left out."""


class OutsideSleep(NamedTuple):
    """A sleep of a rank that no record shows."""

    rank: int
    row: int
    """The number of the rank's row before which it slept."""
    for_ns: int
    cause: int
    """The rank whose answer has ended it; -1: none has."""
    cause_rows: int
    """The number of rows that this rank had executed then."""


@dataclass(frozen=True, kw_only=True)
class Setup(MachineView):
    """The settings of the recorded run. If ranks shared timelines, the recording has only those with timelines of
    their own (``virtual_time.Timelines``).
    """

    slowed: tuple[int, ...] = ()
    """The ranks that a fault of the run made different."""
    faults: tuple[str, ...] = ()
    """The texts of the run's faults."""


@dataclass(frozen=True, slots=True, eq=False)
class Stream:
    """The rows of ranks that did the same."""

    rows: NDArray[Any]
    counters: Sequence[tuple[Any, ...]]
    """The fields of their COUNTERS, in order."""


class AskedMemory(NamedTuple):
    """The requests of one rank to the memory of its GPUs."""

    peak_nbytes: int
    """The most bytes that it was given of one GPU."""
    failures: int
    """The number of requests that failed."""
    failed_site: int
    """The call site of the last failed request."""
    looked_site: int | None
    """The site at which it first asked how much is free; None: it did not ask."""


class Recording:
    """The recording of one run. Properties raise Damaged where the file is not what a recorder writes."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._reader = reader = Reader(folder / FILE)
        self.connects = True
        """Do hosts wait where NCCL connects them?"""
        try:
            self.setup = from_plain(Setup, reader.header.get("spec"))
            self.costs = {
                int(key): Priced(str(signature), from_plain(Cost, cost))
                for key, signature, cost in reader.list("costs", MOST_ENTRIES)
            }
            self.kernels = [
                tuple(Call(*map(int, call)) for call in kernel) for kernel in reader.list("kernels", MOST_ENTRIES)
            ]
            self.comms = {comm.id: comm for comm in map(_comm, reader.list("comms", MOST_ENTRIES))}
            same: dict[tuple[int, ...], tuple[int, ...]] = {}  # all ranks are members of most: one object for all these
            self.creations = [
                Creation(str(label), same.setdefault(found := tuple(map(int, members)), found))
                for label, members in reader.list("creations", MOST_ENTRIES)
            ]
            self.sleeps = [OutsideSleep(*map(int, one)) for one in reader.list("waits", MOST_ENTRIES)]
            self.warnings = [
                (str(text), tuple(map(int, ranks)), int(count))
                for text, ranks, count in reader.list("warnings", MOST_ENTRIES)
            ]
            self.report: dict[str, Any] = dict(reader.header["report"])
            self._ranks: dict[int, dict[str, Any]] = {
                int(rank["rank"]): dict(rank) for rank in reader.list("ranks", MOST_RANKS)
            }
            self._check()
        except (PlainError, KeyError, TypeError, ValueError) as error:
            raise reader.damaged(str(error)) from None
        self._streams: dict[tuple[Any, ...], Stream] = {}
        self._others: list[dict[int, int]] = [{}]
        """The numbers of kernels that some ranks have in place of those that their rows name."""

    def _check(self) -> None:
        """Checks the whole recording. Raises ValueError."""
        servers, folding = self.setup.servers, self.setup.folding
        ranks = sum(servers)
        if not servers or min(servers) < 1 or not 0 < ranks <= MOST_RANKS:
            raise ValueError("it has not as many ranks as its servers have GPUs")
        if folding is not None:
            check_folding(folding, ranks)
        if not all(gave and min(gave) >= 0 and max(gave) < ranks for _, gave, _ in self.warnings):
            raise ValueError("a warning that no rank of it gave")
        if not all(0 <= rank < ranks for rank in self.setup.slowed):
            raise ValueError("a rank that is not there is slow")
        if self.own != self.timelines.own:
            raise ValueError("it has not the ranks that have timelines of their own")
        for comm in self.comms.values():
            check_comm(comm, servers)
        for kernel in self.kernels:
            for call in kernel:
                check_call(call, ranks)
        for members in {id(one.members): one.members for one in self.creations}.values():
            check_members(members, ranks)
        if not all(one.rank in self._ranks and one.cause in {-1, *self._ranks} for one in self.sleeps):
            raise ValueError("a rank that is not there sleeps")
        if sum(abs(one.for_ns) for one in self.sleeps) > MOST_NS or any(one.for_ns < 0 for one in self.sleeps):
            raise ValueError("a rank sleeps for an impossible time")

    @property
    def digest(self) -> str:
        """The digest of all that the file holds."""
        return self._reader.digest

    @cached_property
    def timelines(self) -> Timelines:
        """Says which ranks share a timeline."""
        setup = self.setup
        folding = setup.folding if setup.share_timelines else None
        return Timelines(sum(setup.servers), folding, setup.servers, setup.slowed)

    def read_ahead(self) -> None:
        """Reads everything that is otherwise read when it is first asked for, so that forked processes share it."""
        for rank in self.own:
            self.stream(rank)
            self.answers(rank)

    @property
    def world_size(self) -> int:
        return sum(self.setup.servers)

    @property
    def own(self) -> tuple[int, ...]:
        """The ranks that have timelines of their own, in ascending order. The recording has no data of others."""
        return tuple(sorted(self._ranks))

    def recast(self, setup: Setup, parts: Mapping[int, Part], tables: Recast) -> Recording:
        """The recording as if other ranks had done the parts of recorded ones. `parts`: by rank."""
        found = copy(self)
        for name in ("timelines", "_seats"):
            found.__dict__.pop(name, None)
        found.setup, found.comms, found.creations = setup, tables.comms, tables.creations
        found.kernels, found.sleeps, found.warnings = tables.kernels, tables.sleeps, tables.warnings
        found.connects = tables.connects
        meshes = {one.folding and one.folding.mesh for one in (setup, self.setup)}
        if len(meshes) > 1:
            # Calls were counted over all ranks of the run, and these are more or fewer.
            found.report = {name: part for name, part in self.report.items() if name != "calls"}
        found._streams, found._others = {}, [{}, *tables.others]
        found._ranks = {
            rank: self._ranks[part.of] | {"comms": part.comms, "creations": part.creations, "others": part.others}
            for rank, part in parts.items()
        }
        return found

    @cached_property
    def run(self) -> dict[str, Any]:
        """The part ``run`` of the run's report; empty if it was removed."""
        try:
            found = orjson.loads(read_bytes(self.folder / "run.json", MOST_DATA_NBYTES))
        except (OSError, orjson.JSONDecodeError):
            return {}
        return found if isinstance(found, dict) else {}

    def key_of(self, rank: int) -> tuple[Any, ...]:
        """A key that is equal for ranks with the same rows."""
        chunks, counters = self._entry(rank, "chunks", list), self._entry(rank, "counters", int)
        return (*chunks, counters, self._ranks[rank].get("others", 0))

    def stream(self, rank: int) -> Stream:
        """The rows of a rank. Ranks that did the same share one object."""
        key = self.key_of(rank)
        found = self._streams.get(key)
        if found is None:
            *chunks, counters, others = key
            content = b"".join(map(self._reader.piece, chunks))
            table = self._reader.piece(counters)
            if len(content) % ROW.itemsize or len(table) % COUNTERS.size:
                raise self._reader.damaged(f"rank {rank} has a part of a row")
            rows = _with_kernels(np.frombuffer(content, ROW), self._others[others])
            found = Stream(rows, list(COUNTERS.iter_unpack(table)))
            try:
                check_rows(found.rows, found.counters)
            except ValueError as error:
                raise self._reader.damaged(f"rank {rank}: {error}") from None
            self._streams[key] = found
        return found

    def side(self, rank: int) -> list[Any]:
        """The records of a rank that the report needs."""
        try:
            found, used = records.decode_up(content := self._reader.piece(self._entry(rank, "side", int)))
        except RecordError as error:
            raise self._reader.damaged(str(error)) from None
        if used != len(content):
            raise self._reader.damaged(f"rank {rank} has a part of a record")
        server, gpu = self._seats[rank]
        # Another rank may have told this one's: each uses its own GPU where the other one uses its own.
        teller = next((one.local_rank for one in found if isinstance(one, records.Hello)), gpu)
        swapped = {teller: gpu, gpu: teller}
        side: list[Any] = []
        for one in found:
            if isinstance(one, records.Hello):
                one = one._replace(rank=rank, world_size=self.world_size, server=server, local_rank=gpu)
            elif isinstance(one, (records.Memory, records.MemoryHeld)):
                one = one._replace(gpu=swapped.get(one.gpu, one.gpu))
            side.append(one)
        return side

    @cached_property
    def _seats(self) -> list[tuple[int, int]]:
        """The server of each rank, and its GPU there."""
        return [(server, gpu) for server, gpus in enumerate(self.setup.servers) for gpu in range(gpus)]

    def memory(self, rank: int) -> AskedMemory:
        side = self.side(rank)
        held = [one for one in side if one.kind == records.MEMORY_HELD]
        failed = next((one for one in reversed(held) if one.failures), None)
        return AskedMemory(
            max((one.device_peak for one in side if one.kind == records.MEMORY), default=0),
            failed.failures if failed is not None else 0,
            failed.missing_site if failed is not None else 0,
            next((one.at_site for one in side if one.kind == records.LOOKED), None),
        )

    def answers(self, rank: int) -> RecordedAnswers:
        queries, elapsed, clocks = (
            self._reader.piece(self._entry(rank, name, int)) for name in ("queries", "elapsed", "clocks")
        )
        try:
            return recorded_answers(queries, elapsed, clocks)
        except ValueError:
            raise self._reader.damaged(f"rank {rank} has a part of an answer") from None

    @cached_property
    def dictionary(self) -> Dictionary:
        """The works and lists for which the numbers in histories stand."""
        header = self._reader.header
        try:
            return dictionary(self._reader.piece(header.get("works")), self._reader.piece(header.get("lists")))
        except RecordError as error:
            raise self._reader.damaged(str(error)) from None

    def history(self, rank: int) -> NDArray[np.void]:
        """The history of a rank: an entry for each list of launches and each record; see ``records.HistoryEntry``."""
        content = self._reader.piece(self._entry(rank, "history", int))
        if len(content) % ENTRY.itemsize:
            raise self._reader.damaged(f"rank {rank} has a part of an entry")
        return np.frombuffer(content, ENTRY)

    def comms_of(self, rank: int) -> list[Comm]:
        """The communicators that the rank has used, in the order of their first use."""
        try:
            found = [self.comms[number] for number in self._entry(rank, "comms", list)]
        except (KeyError, TypeError):
            raise self._reader.damaged(f"rank {rank} uses a communicator that is not described") from None
        if not all(rank in comm.rank_of for comm in found):
            raise self._reader.damaged(f"rank {rank} uses a communicator of which it is no member")
        return found

    def creations_of(self, rank: int) -> list[int]:
        found: list[int] = self._entry(rank, "creations", list)
        if not all(isinstance(one, int) and 0 <= one < len(self.creations) for one in found):
            raise self._reader.damaged(f"rank {rank} creates a communicator that is not described")
        return found

    def damaged(self, what: str) -> Damaged:
        return self._reader.damaged(what)

    def _entry(self, rank: int, name: str, kind: type) -> Any:
        found = self._ranks[rank].get(name)
        if not isinstance(found, kind):
            raise self._reader.damaged(f"rank {rank} has no {name}")
        return found


def _with_kernels(rows: NDArray[Any], others: Mapping[int, int]) -> NDArray[Any]:
    """The rows with other kernels. `others`: the numbers of kernels in place of those that the rows have."""
    if others:
        rows = rows.copy()
        at = kernel_launches(rows)
        numbers = rows["values"][at, 0].tolist()
        rows["values"][at, 0] = [others.get(number, number) for number in numbers]
    return rows


def _comm(entry: Any) -> Comm:
    number, members, devices, label = entry
    members, devices = tuple(map(int, members)), tuple(map(int, devices))
    return Comm(int(number), members, devices, {rank: place for place, rank in enumerate(members)}, str(label))


def load(folder: Path) -> Recording:
    """Loads the recording. Raises Damaged, a UsageError, for a folder without a recording of this format."""
    return Recording(folder)
