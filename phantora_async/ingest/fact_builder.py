"""Turns records into facts of virtual time.

Some questions need no virtual time: costs, the members of a communicator, which calls belong together, small data. They
are answered here when they arrive, so that ranks continue. All other records become facts for the timeline.
"""

from __future__ import annotations

import itertools
from array import array
from collections import Counter
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from emu.contract import records
from emu.contract.records import NcclKind, RecordError
from phantora_async.errors import Mismatch, ProtocolError, Side
from phantora_async.ingest import memory_holders
from phantora_async.ingest.call_counts import CallCounts
from phantora_async.ingest.call_sites import Site, from_record
from phantora_async.ingest.collective_matching import CollectiveMatching
from phantora_async.ingest.communicators import Answers, Communicators, Created, MemoryOf
from phantora_async.ingest.connections import Connections
from phantora_async.ingest.costs import Costs
from phantora_async.ingest.data_exchange import FOLLOWS, DataExchange
from phantora_async.ingest.differing_lines import DifferingCalls
from phantora_async.ingest.generated_responses import GeneratedResponses
from phantora_async.ingest.launch_counts import LaunchCounts
from phantora_async.ingest.memory_holders import HeldMemory
from phantora_async.ingest.messages import PARTS, kind_of
from phantora_async.ingest.module_launches import ModuleLaunches
from phantora_async.ingest.routing_loads import RoutingLoads
from phantora_async.ingest.source_tables import SourceTables
from phantora_async.ingest.uncomputed_reads import UncomputedReads
from phantora_async.virtual_time import NO_MEMORY, MemoryPeaks, Timelines
from phantora_async.virtual_time.facts import (
    Collective,
    CommCreationFact,
    ConnectFact,
    NcclKernelFact,
    ends_step,
    host_time,
)


class Placed(NamedTuple):
    """The memory that a rank has taken of one of its devices."""

    gpu: int
    """The GPU's number on its server."""
    peaks: MemoryPeaks


class ProcessorTime(NamedTuple):
    """The processor time of this machine that a rank has used, in ns."""

    user_ns: int
    system_ns: int
    reader_ns: int
    """The part of both that the hook library's own thread used."""


NO_TIME = ProcessorTime(0, 0, 0)
_PROMISED = records.marked("PROMISED")
MOST_STEPS = 1 << 63
MOST_NBYTES = 1 << 56
"""The bound of a GPU's memory in bytes."""


@dataclass(slots=True)
class RankInfo:
    """The facts that one rank has reported about itself."""

    hello: records.Hello | None = None
    bye: records.Bye | None = None
    questions: int = 0
    """The number of questions that are not answered yet."""
    last_question: Any = None
    """The record of the last question."""
    told_memory: MemoryPeaks = NO_MEMORY
    """The largest peaks among its devices, as reported; virtual time may not have come so far."""
    memory_at_end: MemoryPeaks = NO_MEMORY
    """The largest peaks among its devices until its process was ended, if that could not report them."""
    used_gpus: set[int] = field(default_factory=set)
    """The numbers on its server of other ranks' GPUs that it has used."""
    placed: dict[int, Placed] = field(default_factory=dict)
    """The place of its memory by device, in the process's numbers of the devices that it sees."""
    held_memory: dict[int, HeldMemory] = field(default_factory=dict)
    """The holders of the memory of each of its devices at the peak."""
    held_by_children: dict[tuple[int, int], HeldMemory] = field(default_factory=dict)
    """The holders of memory in other processes that use its GPU, by the process's number and the server's GPU."""
    launches: LaunchCounts = field(default_factory=LaunchCounts)
    calls: CallCounts = field(default_factory=CallCounts)
    modules: ModuleLaunches = field(default_factory=ModuleLaunches)
    processor: ProcessorTime = NO_TIME
    """The processor time of those of its processes that have ended."""
    log_ends: array[int] = field(default_factory=lambda: array("Q"))
    """The length of its log in bytes at the end of each step; only for the first rank and the last one."""
    unused_gpu: tuple[str, ...] = ()
    """Possible reasons why it has used no GPU, if it says that its PyTorch was never asked for one."""
    alone: bool = False
    """True if it has said that it was in no process group."""
    loaders: dict[int, records.Loader] = field(default_factory=dict)
    """The loads of each of its data loaders."""
    sites: dict[int, Site] = field(default_factory=dict)
    """The call sites by the numbers under which the rank announced them."""
    lines: dict[int, int] = field(default_factory=dict)
    """The lines of these call sites, by the same numbers: equal numbers of lines are the same line on all ranks."""
    trace_names: dict[int, str] = field(default_factory=dict)
    """The texts that keys of TRACE entries stand for: a name, and sizes on a second line."""

    @property
    def last_words(self) -> str:
        """The text of BYE about the end: the line of an uncaught exception; "" for an ordinary end, or before it."""
        return _text(self.bye.payload).replace("\n", " ") if self.bye is not None else ""


NO_PROCESS = (
    "no process has used this GPU, and the other ranks have waited {:.0f} s for it: the run continues without this "
    "rank. --nproc-per-node should be the number of ranks that the launcher starts on a server"
)
CAME_LATE = "the other ranks have waited for its process, and went on without it until it used the GPU first"


@dataclass(slots=True)
class WarningCount:
    """The ranks that gave one warning, and how often each gave it."""

    told: dict[int, int] = field(default_factory=dict)
    """The number of times that ranks that report for others gave it; each rank that shares the timeline gave it as
    often.
    """
    alone: dict[int, int] = field(default_factory=dict)
    """The number of times that ranks that report for no other rank gave it."""

    def by_rank(self, sharing: Mapping[int, Sequence[int]]) -> dict[int, int]:
        """The number of times that each rank gave it, in order. `sharing`: see ``Timelines.sharing``."""
        counts = dict(self.alone)
        for own, count in self.told.items():
            for rank in sharing[own]:
                counts[rank] = counts.get(rank, 0) + count
        return dict(sorted(counts.items()))


class FactBuilder:
    """Turns records into facts: ``take`` gets a rank's records in their order and returns facts; then
    ``take_answers``.
    """

    def __init__(
        self,
        world_size: int,
        costs: Costs,
        steps_reached: Callable[[int], int] = lambda rank: MOST_STEPS,
        mirrored: Container[int] = (),
        timelines: Timelines | None = None,
        communicator_memory: MemoryOf | None = None,
    ) -> None:
        """`steps_reached`: the number of a rank's step ends that virtual time has come to. `mirrored`: the ranks
        without processes, for whose answers nobody waits. `timelines`: None: each rank has its own.
        `communicator_memory`: what NCCL takes of a member's GPU; None: nothing.
        """
        self._mirrored = mirrored
        self._timelines = timelines = timelines or Timelines(world_size)
        self._world_size = world_size
        self._steps_reached = steps_reached
        self.costs = costs
        self._exchange = DataExchange(timelines, self._mirrored)
        self._lines: dict[tuple[str | int, ...], int] = {}
        """A number for each line of the program in which a rank has called something, with the line that called its
        function.
        """
        self.communicators = Communicators(timelines, communicator_memory)
        self.sources = SourceTables(self.communicators, timelines)
        self._matching = CollectiveMatching(self.communicators, timelines, self._line_of)
        self._connections = Connections(timelines)
        own = {rank: RankInfo() for rank in timelines.own}
        self.own_info = tuple(own.values())
        self.timeline_of = timelines.of_each
        """By rank: the rank whose timeline it shares, and whose process reports for it."""
        self.sharing = timelines.sharing
        """For each rank that has a timeline: the ranks that share it, for all of which it reports."""
        self.rank_info = [own[rank] for rank in self.timeline_of]
        """The facts by rank; ranks that share a timeline share them."""
        self.warnings: dict[str, WarningCount] = {}
        """The warnings by their text."""
        self._without: dict[int, str] = {}
        """The ranks without which the run goes on, each with its warning."""
        self.routing = RoutingLoads()
        self.generated = GeneratedResponses()
        self.kept: records.Kept | None = None
        """The last record about data that ranks keep so that it can be read back."""
        self.reads = UncomputedReads()
        self.profiled: set[int] = set()
        """The ranks whose scripts have run a profiler."""
        self.segment_contents: dict[int, Counter[int]] = {}
        """The contents of segments: the launches of each cost, by the number of the content."""
        self._answers: Answers = []
        self._handlers: dict[int, Callable[[int, Any], Any]] = {
            **dict.fromkeys(records.marked("BESIDE"), _beside),
            **dict.fromkeys(records.marked("ROW") & records.REPLY_OF.keys(), self._question),
            records.HELLO: self._hello,
            records.BYE: self._bye,
            records.WARNING: self._warning,
            records.SITE: self._site,
            records.ROUTING: self.routing.take,
            records.GENERATION: self.generated.take,
            records.SEGMENT_CONTENT: self._segment_content,
            records.TRACE: self._trace,
            records.TRACE_NAME: self._trace_name,
            records.STATED_VALUE: self.reads.take_stated,
            records.DATA_SIZE: self.reads.take_size,
            records.LOOP: self.reads.take_loop,
            records.DECIDED: self.reads.take_decided,
            records.CHECKPOINT: self.reads.take_checkpoint,
            records.USAGE: self._usage,
            records.UNUSED_GPU: self._unused_gpu,
            records.GPU_USED: self._gpu_used,
            records.ALONE: self._alone,
            records.LOGGED: self._logged,
            records.MARKER: self._marker,
            records.HOST_WAIT: self._host_wait,
            records.MEMORY: self._memory,
            records.MEMORY_HELD: self._memory_held,
            records.GPU_MEMORY: self._gpu_memory,
            records.STEPS_DONE: self._question,
            records.LAUNCH_COUNTS: self._launch_counts,
            records.MODULE: self._module,
            records.MODULE_COUNTS: self._module_counts,
            records.MODULE_MEMORY: self._module_memory,
            records.NCCL_LAUNCH: self._launch,
            records.NCCL_DATA: self._data,
            records.NCCL_SOURCES: self._told,
            records.KEPT: self._kept,
            records.LOADER: self._loader,
            records.SOURCES_OF: self._sources_of,
            records.COMM_INIT: self._comm_init,
            records.COMM_SPLIT: self._comm_split,
            records.COMM_DESTROY: self._comm_destroy,
            records.CONNECT: self._connect,
            records.COST: self._cost,
        }
        """The handlers by kind of record. Each returns the fact, several in a list, or None if there is none. Other
        records are facts as they are.
        """

    def take(self, rank: int, arrived: list[Any]) -> list[Any]:
        """The facts of these records for the timeline, in order. Raises RunFailure if the run cannot continue after
        them.
        """
        rank_info = self.rank_info[rank]
        if rank_info.bye is not None:
            self._check_after_bye(rank, arrived)
        if rank_info.hello is None and arrived and arrived[0].kind != records.HELLO:
            raise ProtocolError(rank, f"{records.NAMES[arrived[0].kind]} before HELLO")
        find = self._handlers.get
        facts: list[Any] = []
        try:
            for record in arrived:
                handler = find(record.kind)
                fact = record if handler is None else handler(rank, record)
                if fact.__class__ is list:
                    facts += fact
                elif fact is not None:
                    facts.append(fact)
        except Mismatch as failure:
            failure.before = facts
            raise
        return facts

    def take_recorded(self, rank: int, kept: Sequence[Any]) -> None:
        """Takes the records that a recording has kept beside the op stream: those of all the rank's processes, each of
        which begins with a HELLO. Raises RunFailure as ``take`` does.
        """
        for record in kept:
            if record.kind == records.HELLO:
                self.process_joins(rank)
            self.take(rank, [record])

    def process_joins(self, rank: int) -> None:
        """Prepares for another process of the rank, which will say HELLO."""
        self.rank_info[rank].hello = None

    def begin_again(self, rank: int) -> None:
        """Prepares for the next process of the rank, after its process has ended well, or after others have gone on
        without it.
        """
        text = self._without.pop(rank, None)
        if text is not None:
            del self.warnings[text].alone[rank]
            if not self.warnings[text].alone:
                del self.warnings[text]
            self.warn(rank, CAME_LATE)
        self.rank_info[rank].bye = None
        self._matching.begin_again(rank)
        self.process_joins(rank)

    def restart(self, ranks: Iterable[int], steps: int) -> None:
        """Prepares a restart of these ranks after so many steps; all processes have ended."""
        self._exchange = DataExchange(self._timelines, self._mirrored)
        self.sources = SourceTables(self.communicators, self._timelines)
        self.communicators.restart()
        self._connections.restart()
        self._matching.restart(ranks)
        self._answers.clear()
        for rank in ranks:
            rank_info = self.rank_info[rank]
            rank_info.hello = rank_info.bye = rank_info.last_question = None
            rank_info.questions = 0
            rank_info.sites.clear()
            self.reads.loops.pop(rank, None)
            rank_info.launches.restart(steps)
            rank_info.calls.restart(steps)
            del rank_info.log_ends[steps:]

    def memory_at_end(self, rank: int, memory: Sequence[Sequence[int]], played_by: int | None = None) -> None:
        """Records the memory of a rank whose process was ended. `memory`: for each GPU of its server that it has used,
        the GPU's number, and the most bytes that were allocated, reserved and taken of it; without an allocator that
        counts, the taken bytes count.
        `played_by`: the rank whose process that was, if this one has none.
        """
        info = self.rank_info[rank]
        own, teller = (self._timelines.gpu_of(one) for one in (rank, rank if played_by is None else played_by))
        if not all(len(row) == 4 and all(0 <= value <= MOST_NBYTES for value in row) for row in memory):
            raise ProtocolError(rank, f"memory at its end: {memory!r:.80}")
        for gpu, allocated, reserved, taken in memory:
            gpu = {own: teller, teller: own}.get(gpu, gpu)
            peaks = MemoryPeaks(allocated or taken, reserved or taken, taken)
            info.memory_at_end = peaks.largest(info.memory_at_end)
            device = next((device for device, known in info.placed.items() if known.gpu == gpu), gpu)
            before = info.placed.get(device)
            info.placed[device] = Placed(gpu, peaks if before is None else peaks.largest(before.peaks))

    def user_of_gpu(self, rank: int) -> int | None:
        """A rank whose process has used the GPU that is this rank's by its number; None if there is none."""
        gpus = self._timelines.gpus
        if not gpus:
            return None
        first = rank - gpus[rank]
        server = itertools.takewhile(lambda other: other - gpus[other] == first, range(first, self._world_size))
        return next((other for other in server if self._uses(other, gpus[rank])), None)

    def _uses(self, rank: int, gpu: int) -> bool:
        """Returns true if the rank's process has used this GPU of its server. A rank for which another one reports has
        used the other one's own GPU where that one has used the GPU of this number, as the two GPUs take each other's
        place.
        """
        own, teller = self._timelines.gpus[rank], self._timelines.gpus[self.timeline_of[rank]]
        return {own: teller, teller: own}.get(gpu, gpu) in self.rank_info[rank].used_gpus

    def take_answers(self) -> Answers:
        """The answers that ranks are to be sent, since the last call."""
        answers, self._answers = self._answers, []
        return answers

    def rank_ended(self, rank: int) -> list[Any]:
        """The facts of a rank that ended with exit code 0 without a BYE. Raises Deadlock if others wait for it."""
        (bye,), _ = records.decode_up(records.Bye.encode(0, 0, 0))
        assert isinstance(bye, records.Bye)
        return [self._bye(rank, bye)]

    def answered(self, rank: int) -> None:
        """Counts one question of the rank's process as answered."""
        if rank not in self._mirrored:
            self.rank_info[rank].questions -= 1

    def goes_without(self, rank: int, patience_s: float) -> None:
        """Warns that the run goes on without a process of the rank. It may come later."""
        text = NO_PROCESS.format(patience_s)
        self._without[rank] = text
        self.warn(rank, text)

    def warn(self, rank: int, text: str, count: int = 1) -> None:
        """Adds a warning about this rank alone to the report."""
        alone = self.warnings.setdefault(text, WarningCount()).alone
        alone[rank] = alone.get(rank, 0) + count

    def warn_of(self, rank: int, text: str, count: int = 1) -> None:
        """Adds a warning about what the rank did, and with it all ranks that share its timeline, to the report."""
        told = self.warnings.setdefault(text, WarningCount()).told
        told[rank] = told.get(rank, 0) + count

    def site(self, rank: int, number: int) -> Site | None:
        """The call site that the rank announced under that number; None if it announced none."""
        return self.rank_info[rank].sites.get(number)

    def incomplete_collectives(self) -> dict[int, Collective]:
        """For each rank the oldest collective that it has called and other members have not, if there is one."""
        return self._matching.incomplete()

    def mismatch(self) -> tuple[Side, ...]:
        """The calls of the first collective on which its members disagree, of all that have called it by now."""
        return self._matching.mismatch()

    def not_yet_in_mismatch(self) -> set[int]:
        """The ranks that have not called the collective on which others disagree, and have not ended."""
        return self._matching.disagreeing()

    def differing_lines(self) -> list[DifferingCalls]:
        """For each communicator on which ranks wait: the calls that its members made last in different lines, if they
        made any.
        """
        return self._matching.differing_lines()

    # ---- handlers --------------------------------------------------------------------------------------------------

    def _site(self, rank: int, record: records.Site) -> None:
        site = from_record(record)
        if site is not None:
            self.rank_info[rank].sites[record.number] = site
            caller = (site.caller.file, site.caller.line) if site.caller else ()
            line = site.line.file, site.line.line, *caller
            self.rank_info[rank].lines[record.number] = self._lines.setdefault(line, len(self._lines))

    def _line_of(self, rank: int, site: int) -> int | None:
        return self.rank_info[rank].lines.get(site)

    def _module(self, rank: int, record: records.Module) -> None:
        self.rank_info[rank].modules.name(record)

    def _module_counts(self, rank: int, record: records.ModuleCounts) -> None:
        self.rank_info[rank].modules.add(rank, record, self.costs.check)

    def _module_memory(self, rank: int, record: records.ModuleMemory) -> None:
        self.rank_info[rank].modules.hold(rank, record)

    def _usage(self, rank: int, record: records.Usage) -> None:
        info = self.rank_info[rank]
        before = info.processor
        info.processor = ProcessorTime(
            before.user_ns + record.user_ns,
            before.system_ns + record.system_ns,
            before.reader_ns + record.reader_ns,
        )

    def _logged(self, rank: int, record: records.Logged) -> None:
        self.rank_info[rank].log_ends.append(record.log_nbytes)

    def _gpu_used(self, rank: int, record: records.GpuUsed) -> None:
        if record.gpu < len(self._timelines.gpus):  # else it is no rank's
            self.rank_info[rank].used_gpus.add(record.gpu)

    def _alone(self, rank: int, record: records.Alone) -> None:
        self.rank_info[rank].alone = True

    def _unused_gpu(self, rank: int, record: records.UnusedGpu) -> None:
        self.rank_info[rank].unused_gpu = tuple(filter(None, _text(record.payload).split("\n")))

    def _trace(self, rank: int, record: records.Trace) -> records.Trace:
        if record.profiled:
            self.profiled.add(rank)
        return record

    def _trace_name(self, rank: int, record: records.TraceName) -> None:
        self.rank_info[rank].trace_names[record.key] = _text(record.payload)

    def _segment_content(self, rank: int, record: records.SegmentContent) -> None:
        if record.content in self.segment_contents:
            return
        self.segment_contents[record.content] = self.costs.launches(rank, record)

    def _marker(self, rank: int, record: records.Marker) -> records.Marker:
        if ends_step(record):
            info, reached = self.rank_info[rank], self._steps_reached(rank)
            info.launches.step_ended(reached)
            info.calls.step_ended(reached)
        return record

    def _host_wait(self, rank: int, record: records.HostWait) -> records.HostWait:
        info = self.rank_info[rank]
        info.calls.wait(record.scope, info.sites.get(record.site))
        return record

    def _memory(self, rank: int, record: records.Memory) -> records.Memory:
        peaks = MemoryPeaks(record.allocated_peak, record.reserved_peak, record.device_peak)
        if max(peaks) > MOST_NBYTES:
            raise ProtocolError(rank, f"MEMORY: {max(peaks)} bytes")
        info = self.rank_info[rank]
        info.told_memory = peaks.largest(info.told_memory)
        before = info.placed.get(record.device)
        info.placed[record.device] = Placed(record.gpu, peaks if before is None else peaks.largest(before.peaks))
        return record

    def _memory_held(self, rank: int, record: records.MemoryHeld) -> None:
        info = self.rank_info[rank]
        try:
            held = memory_holders.from_record(record)
        except RecordError as error:
            raise ProtocolError(rank, str(error)) from None
        if record.child:
            info.held_by_children[record.child, record.gpu] = held
        if not record.child or record.parent == rank + 1:
            # The rank's processes report their peaks as one rank's: the fullest of them tells the holders.
            before = info.held_memory.get(record.device)
            if not record.child or before is None or before.allocated < held.allocated:
                info.held_memory[record.device] = held

    def _gpu_memory(self, rank: int, record: records.GpuMemory) -> records.GpuMemory:
        if record.taken > MOST_NBYTES or record.parent > self._world_size or bool(record.child) != bool(record.parent):
            raise ProtocolError(rank, f"GPU_MEMORY: {record.taken} bytes of process {record.child} of {record.parent}")
        if self._mirrored and record.parent not in (0, rank + 1):
            self.warn(
                rank,
                f"a process that rank {record.parent - 1} has started uses the GPU of rank {rank}: ranks without "
                "processes have started none, so the memory and the work of theirs are not counted",
            )
        return record

    def _launch_counts(self, rank: int, record: records.LaunchCounts) -> records.HostAdvance:
        """Takes the counts. Virtual time only needs the host time before them."""
        self.rank_info[rank].launches.add(rank, record, self.costs.check)
        return host_time(record)

    def _hello(self, rank: int, record: records.Hello) -> records.Hello:
        if self.rank_info[rank].hello is not None:
            raise ProtocolError(rank, "HELLO twice")
        if (record.rank, record.world_size) != (rank, self._world_size):
            raise ProtocolError(rank, f"it says it is rank {record.rank} of {record.world_size}")
        self.rank_info[rank].hello = record
        return record

    def _check_after_bye(self, rank: int, arrived: list[Any]) -> None:
        """Raises ProtocolError for records after BYE, except for data that the rank had promised to others: that is not
        part of the op stream.
        """
        for record in arrived:
            if record.kind not in _PROMISED:
                raise ProtocolError(rank, f"{records.NAMES[record.kind]} after BYE")

    def _bye(self, rank: int, record: records.Bye) -> records.Bye | records.HostAdvance:
        self.rank_info[rank].bye = record
        if record.exit_code:  # it holds virtual time at its end: its launcher may start it again
            return host_time(record)
        self._matching.rank_ended(rank)
        self.communicators.rank_ended(rank)
        return record

    def _warning(self, rank: int, record: records.Warning) -> records.Warning:
        self.warn_of(rank, _text(record.payload), record.count)
        return record

    def _launch(self, rank: int, record: records.NcclLaunch) -> NcclKernelFact:
        payload = record.payload
        try:
            ops = records.NcclOp.decode_all(payload, 0, record.nops)
        except RecordError as error:
            raise ProtocolError(rank, str(error)) from None
        start = record.nops * records.NcclOp.size()
        collectives = []
        for op in ops:
            data = b""
            if op.data_nbytes and op.data_nbytes != FOLLOWS:
                data = payload[start : start + op.data_nbytes]
                if len(data) != op.data_nbytes:
                    raise ProtocolError(rank, f"NCCL_LAUNCH without the {op.data_nbytes} bytes it announces")
                start += op.data_nbytes + (-op.data_nbytes % 8)
            if op.op & PARTS:
                joined = self._matching.join_message(rank, op, record.site)
            elif (
                self._timelines.shared and (exchange := self._matching.join_exchange(rank, op, record.site)) is not None
            ):
                moves, data_of = exchange
                self._answers += self._exchange.join(rank, data_of, op, data)
                collectives.append(moves)
                continue
            else:
                joined = [(self._matching.join(rank, op, record.site), op)]
            for collective, call in joined:
                self._answers += self._exchange.join(rank, collective, call, data)
                collectives.append(collective)
        ops = [op._replace(op=kind_of(op.op)) if op.op & PARTS else op for op in ops]
        self._answers += self.sources.made(rank, ops)
        if {NcclKind.SEND, NcclKind.RECV} <= {op.op for op in ops}:
            for collective in collectives:
                collective.exchange = True
        info = self.rank_info[rank]
        info.calls.collectives(collectives, info.sites.get(record.site))
        return NcclKernelFact(*record[:4], record.stream, tuple(collectives))

    def _connect(self, rank: int, record: records.Connect) -> list[ConnectFact]:
        try:
            peers = records.ConnectPeer.decode_all(record.payload, 0, record.npeers)
        except RecordError as error:
            raise ProtocolError(rank, str(error)) from None
        return self._connections.facts(rank, self.communicators.of(rank, record.comm), record, peers)

    def _data(self, rank: int, record: records.NcclData) -> None:
        self._answers += self._exchange.late(rank, record._replace(op=kind_of(record.op)))

    def _loader(self, rank: int, record: records.Loader) -> None:
        self.rank_info[rank].loaders[record.number] = record

    def _kept(self, rank: int, record: records.Kept) -> None:
        if self.kept is None or record.peak >= self.kept.peak:
            self.kept = record

    def _told(self, rank: int, record: records.NcclSources) -> None:
        self._answers += self.sources.told(record._replace(op=kind_of(record.op)))

    def _sources_of(self, rank: int, record: records.SourcesOf) -> None:
        self._answers += self.sources.ask(rank, record)

    def _comm_init(self, rank: int, record: records.CommInit) -> CommCreationFact:
        self._question(rank, record)
        return self._created(record, self.communicators.init(rank, record))

    def _comm_split(self, rank: int, record: records.CommSplit) -> CommCreationFact:
        self._question(rank, record)
        return self._created(record, self.communicators.split(rank, record))

    def _comm_destroy(self, rank: int, record: records.CommDestroy) -> records.CommDestroy:
        if record.aborted:
            self._matching.aborted(rank, record.comm)
        return record

    def _created(self, record: Any, created: Created) -> CommCreationFact:
        self._answers += created.answers
        for rank, _ in created.answers:
            self.answered(rank)
        return CommCreationFact(record.kind, record.site, record.nbytes, record.host_ns, created.creation)

    def _cost(self, rank: int, record: records.Cost) -> records.Cost | None:
        try:
            self._answers.append((rank, self.costs.answer(record)))
        except RecordError as error:
            raise ProtocolError(rank, str(error)) from None
        return record if record.host_ns else None

    def _question(self, rank: int, record: Any) -> Any:
        if rank not in self._mirrored:
            rank_info = self.rank_info[rank]
            rank_info.questions += 1
            rank_info.last_question = record
        return record


def _beside(rank: int, record: Any) -> None:
    """Ignores a record of which virtual time and the report need nothing, but perhaps a recording."""


def _text(payload: bytes) -> str:
    return payload.rstrip(b"\0").decode(errors="replace")
