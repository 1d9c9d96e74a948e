"""The simulation of a run: virtual time, what feeds it with facts, and what listens to it."""

from __future__ import annotations

from dataclasses import dataclass

from phantora_async.coordinator.network_model import NetsimNetworkModel, network_of
from phantora_async.coordinator.tracing import trace_of
from phantora_async.faults import paces_of
from phantora_async.folding.mirrored_ranks import MirroredRanks
from phantora_async.folding.witnesses import Witnesses
from phantora_async.ingest.costs import Costs, CostTable
from phantora_async.ingest.fact_builder import FactBuilder
from phantora_async.reasons import LastSteps
from phantora_async.recording import Recorder
from phantora_async.run_spec import RunSpec
from phantora_async.trace.run_trace import RunTrace
from phantora_async.virtual_time import Timeline, Timelines
from profiles import CostModel


@dataclass(frozen=True, slots=True)
class Simulation:
    """The parts of the simulation, which know nothing of processes and connections."""

    spec: RunSpec
    network: NetsimNetworkModel
    timeline: Timeline
    fact_builder: FactBuilder
    trace: RunTrace
    mirrored_ranks: MirroredRanks | None
    """The ranks of a folded run that have no processes; None: all ranks have."""
    witnesses: Witnesses | None
    """Checks that ranks of a folded run do the same; None: the run is not folded."""
    last_steps: LastSteps | None
    """The steps from which the report explains reasons; None: it explains none."""
    recorder: Recorder | None


def simulation_of(spec: RunSpec) -> Simulation:
    """Makes the parts, each from those before it."""
    network = network_of(spec, spec.cluster)
    network.replicated.must_be_alike = spec.each_if_they_differ
    paces, folding = paces_of(spec.faults, spec.servers), spec.folding
    timelines = Timelines(spec.world_size, folding if spec.share_timelines else None, spec.servers, paces.ranks)
    timeline = Timeline(spec.world_size, network, spec.host.queue_depth, paces=paces, timelines=timelines)
    model = CostModel(spec.gpu, *(times.on for times in spec.kernel_times), measure=spec.measure)
    fact_builder = FactBuilder(
        spec.world_size,
        Costs(model, CostTable(spec.cost_table)),
        timeline.results.steps_done,
        frozenset(range(spec.world_size)).difference(folding.live) if folding is not None else (),
        timelines,
        network.communicator_memory,
    )
    mirrored_ranks, witnesses = None, None
    if folding is not None:
        mirrored_ranks = MirroredRanks(folding, timelines, spec.servers, fact_builder.communicators)
        witnesses = Witnesses(folding, timelines, fact_builder.communicators, fact_builder.costs)
    return Simulation(
        spec=spec,
        network=network,
        timeline=timeline,
        fact_builder=fact_builder,
        trace=trace_of(spec, timeline, fact_builder, network),
        mirrored_ranks=mirrored_ranks,
        witnesses=witnesses,
        last_steps=LastSteps(spec.world_size, timeline.results.steps_done) if spec.reasons else None,
        recorder=Recorder(spec, spec.record, timelines) if spec.record is not None else None,
    )
