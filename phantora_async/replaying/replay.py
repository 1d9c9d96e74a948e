"""Executes a recording: facts, then virtual time, then the report."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

import netsim
from emu.contract import records
from phantora_async.coordinator.early_end import EarlyEnd
from phantora_async.coordinator.network_model import NetsimNetworkModel, network_of
from phantora_async.coordinator.replicated_collectives import DIFFERING
from phantora_async.coordinator.whole_report import whole_report
from phantora_async.errors import InternalError, PathChanged
from phantora_async.faults import paces_of
from phantora_async.ingest.costs import Costs, Priced
from phantora_async.ingest.fact_builder import FactBuilder, WarningCount
from phantora_async.recording import Recording
from phantora_async.recording.recording import Stream
from phantora_async.replaying.answers import Compared, compare
from phantora_async.replaying.attribute_reads import as_json
from phantora_async.replaying.differences import QUERIES, Allowed, check_attributes, check_memory
from phantora_async.replaying.execution import RecordedRun, execute
from phantora_async.replaying.loops import marked
from phantora_async.replaying.pricing import Machine, Pricing
from phantora_async.replaying.repetition import Repetition
from phantora_async.report import Document, Usage
from phantora_async.report.steps import step_document
from phantora_async.run_spec import RunSpec
from phantora_async.virtual_time import Timeline
from profiles import CostModel

NOBODY: Mapping[int, float] = {}


@dataclass(frozen=True, slots=True)
class Replayed:
    report: Document
    compared: dict[str, Compared]
    """The compared answers, by question."""


def replay(
    recording: Recording,
    spec: RunSpec,
    allowed: Allowed = frozenset(),
    slow: Mapping[int, float] = NOBODY,
    repetition: Repetition | None = None,
) -> Replayed:
    """Replays the recording. `spec`: the machine; `slow`: the share of its speed that a rank's GPU reaches;
    `repetition`: steps that are played. Raises Damaged, and PathChanged where the program would have got another
    answer, unless that is `allowed`.
    """
    usage = Usage()
    with uncollected():
        check_memory(recording, spec, allowed)
        read = check_attributes(recording, spec, allowed)
        pricing = pricing_for(recording, spec, slow)
        executed = execute_on(recording, spec, pricing, allowed, repetition)
    fact_builder = _known(recording, spec, pricing, repetition)
    if text := executed.network.replicated.differing():
        fact_builder.warn(0, text)
    report = whole_report(spec, executed.timeline, fact_builder, executed.network, usage, stopped=executed.stopped)
    same_times = not any(one.other for one in executed.compared.values())
    if spec.gpu == recording.setup.gpu and not spec.kernel_times:
        report["simulated"]["kernel_times"] = recording.report["kernel_times"]
    report["simulated"]["logged"] = recording.report["logged"] if same_times else []
    # Lines and their text are those of the run: the script may have changed since.
    if repetition is None and "calls" in recording.report:
        report["simulated"]["calls"] = recording.report["calls"]
    else:
        del report["simulated"]["calls"]
    if read:
        report["simulated"]["read_attributes"] = [as_json(one) for one in read]
    if list(map(str, spec.faults)) != list(recording.setup.faults):
        report["simulated"] |= _without_faults(recording, spec, pricing, allowed, repetition)
    if repetition is not None:
        played = {"step": repetition.step, "count": repetition.count, "inexact_ranks": list(repetition.asked_otherwise)}
        report["simulated"]["played_steps"] = played
    return Replayed(report, executed.compared)


def _without_faults(
    recording: Recording, spec: RunSpec, pricing: Pricing | None, allowed: Allowed, repetition: Repetition | None
) -> Document:
    """The step time without the faults; empty if there are no faults, or if the program would have gone another way."""
    if not spec.faults:
        return {}
    with uncollected(), contextlib.suppress(PathChanged):
        executed = execute_on(recording, replace(spec, faults=()), pricing, allowed, repetition)
        return {"without_faults": {"median_ns": step_document(executed.timeline.snapshot([0]))["median_ns"]}}
    return {}


@contextlib.contextmanager
def uncollected() -> Iterator[None]:
    """A context without garbage collection: simulated state forms no cycles."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


class Executed(NamedTuple):
    timeline: Timeline
    network: NetsimNetworkModel
    compared: dict[str, Compared]
    stopped: Document | None
    """The option that has ended the run before its script; None if none has."""


def execute_on(
    recording: Recording,
    spec: RunSpec,
    pricing: Pricing | None,
    allowed: Allowed,
    repetition: Repetition | None = None,
) -> Executed:
    """Executes the recording on this machine. `pricing`: None if nothing is priced anew. Raises Damaged and
    PathChanged.
    """
    ranks = recording.own
    streams = [pricing.priced(rank).stream if pricing is not None else recording.stream(rank) for rank in ranks]
    try:
        return _execute_on(recording, spec, streams, allowed, repetition)
    except netsim.NetsimError as error:
        raise recording.damaged(str(error)) from None


def _execute_on(
    recording: Recording,
    spec: RunSpec,
    streams: list[Stream],
    allowed: Allowed,
    repetition: Repetition | None,
) -> Executed:
    # Ranks that share rows and answers share the marked stream, which keeps memory bounded.
    known: dict[tuple[int, bytes], Stream] = {}
    for place, (rank, stream) in enumerate(zip(recording.own, tuple(streams), strict=True)):
        queries = recording.answers(rank).queries
        key = id(stream), queries.tobytes()
        if key not in known:
            known[key] = marked(stream, queries)
        streams[place] = known[key]
    longer = recording
    # Played steps are inserted before the programs are made, as if they had been recorded.
    if repetition is not None:
        longer = repetition.moved(recording)
        made: dict[int, Stream] = {}
        for rank, stream in zip(recording.own, streams, strict=True):
            if id(stream) not in made:
                made[id(stream)] = repetition.stream(rank, stream)
        streams = [made[id(stream)] for stream in streams]
    network = network_of(spec, spec.cluster)
    paces = paces_of(spec.faults, spec.servers)
    timeline = Timeline(
        spec.world_size,
        network,
        spec.host.queue_depth,
        paces=paces,
        timelines=recording.timelines,
        recorded=RecordedRun(longer, streams),
    )
    early_end = EarlyEnd(spec, timeline)
    stop, answers = execute(longer, timeline)
    # Answers in played steps have no recorded counterpart: they are checked and taken out before the comparison.
    if repetition is not None:
        allow = QUERIES in allowed
        answers = [
            repetition.recorded(recording, rank, given, allow)
            for rank, given in zip(recording.own, answers, strict=True)
        ]
    compared = compare(recording, answers, allowed)
    stopped = early_end.document() if early_end.reached(stop) or early_end.explains() else None
    # Only an option may end a replay early: else the recording itself must have ended before the run did.
    if stopped is None and not timeline.all_finished():
        raise recording.damaged("a rank ends before the run does")
    return Executed(timeline, network, compared, stopped)


def pricing_for(recording: Recording, spec: RunSpec, slow: Mapping[int, float] = NOBODY) -> Pricing | None:
    """The pricing for this machine; None for the machine of the run."""
    setup = recording.setup
    same = (spec.gpu, spec.host, spec.host_mode) == (setup.gpu, setup.host, setup.host_mode) and not spec.kernel_times
    if same and not slow:
        return None
    costs: Mapping[int, Priced] = recording.costs
    if spec.gpu != setup.gpu or spec.kernel_times:
        model = CostModel(spec.gpu, *(times.on for times in spec.kernel_times))
        costs = {key: Priced(one.signature, model.cost(one.signature)) for key, one in recording.costs.items()}
    return Pricing(recording, Machine(spec.gpu, spec.host, spec.host_mode, costs, slow))


def _known(recording: Recording, spec: RunSpec, pricing: Pricing | None, repetition: Repetition | None) -> FactBuilder:
    """The facts about ranks that the report needs beside virtual time."""
    costs = recording.costs if pricing is None else pricing.machine.costs
    known = Costs(CostModel(spec.gpu), None)
    for key, priced in costs.items():
        known.add(key, priced)
    fact_builder = FactBuilder(spec.world_size, known, timelines=recording.timelines)
    for rank in recording.own:
        slowed = iter(pricing.priced(rank).slowed_ns) if pricing is not None else iter(())
        side = [
            _with_slowed(record, slowed_ns)
            if record.kind == records.LAUNCH_COUNTS and (slowed_ns := next(slowed, None)) is not None
            else record
            for record in recording.side(rank)
        ]
        try:
            fact_builder.take_recorded(rank, side if repetition is None else repetition.side(rank, side))
        except InternalError as error:
            raise recording.damaged(str(error)) from None
    for text, ranks, count in recording.warnings:
        if DIFFERING not in text:
            alone = fact_builder.warnings.setdefault(text, WarningCount()).alone
            alone |= dict.fromkeys(ranks, count // len(ranks))  # ranks of one entry gave it equally often
    return fact_builder


def _with_slowed(record: records.LaunchCounts, slowed_ns: dict[int, int]) -> records.LaunchCounts:
    counts = records.LaunchCount.decode_all(record.payload, 0, record.entries)
    told = (one._replace(slowed_ns=slowed_ns.get(one.key, 0)) for one in counts)
    payload = b"".join(records.LaunchCount.encode(one.key, one.launches, one.slowed_ns, one.at_site) for one in told)
    return record._replace(payload=payload)
