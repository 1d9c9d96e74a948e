"""Simulates how long the step would take if one resource were twice as fast: the same facts, executed with other
durations.

GPU work is priced again for a GPU with the other figures, collectives are planned again for a network with the other
rates, and host time is halved. Work that depends on it (which algorithm NCCL chooses, who waits for whom, what overlaps
what, the GPUs' clock under their power limit) follows. Time that the program sleeps stays.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from emu.contract import records
from phantora_async.faults import paces_of
from phantora_async.figures import Resource
from phantora_async.reasons.contents import Contents
from phantora_async.reasons.power_clock import Busy, Loads, PowerClock
from phantora_async.reasons.replay import play, step_instants
from phantora_async.reasons.window import Facts, Window
from phantora_async.run_spec import RunSpec
from phantora_async.virtual_time import NetworkModel
from phantora_async.virtual_time.facts import sleeps
from profiles import Cluster, Cost, CostModel, Gpu

FASTER = 2
LEAST_COPIES = 0.01
"""The share of a step in which some GPU copies from or to others, from which it is worth to ask."""
NetworkOf = Callable[[Cluster, int], NetworkModel]
"""Makes a network model of the run's servers in this cluster, whose time begins at an instant of the run."""


def what_if(window: Window, spec: RunSpec, contents: Contents, network_of: NetworkOf) -> list[dict[str, Any]]:
    """The step with each resource twice as fast, one entry for each. Raises NoStepError."""
    cluster, depth, paces = spec.cluster, spec.host.queue_depth, paces_of(spec.faults, spec.servers)

    def entry(resource: Resource, facts: Sequence[Facts], cluster: Cluster) -> dict[str, Any]:
        played = play(window, facts, network_of(cluster, window.begin_ns), depth, paces)
        begin_ns, end_ns = step_instants(window, played)
        return {"resource": resource.value, "ns": end_ns - begin_ns}

    before = Before(window, contents, spec.gpu)

    def priced(gpu: Gpu) -> list[Facts]:
        return before.on(gpu, CostModel(gpu, *(times.on for times in spec.kernel_times)), window.facts)

    found = [
        entry(Resource.COMPUTE, priced(faster_compute(spec.gpu)), cluster),
        entry(Resource.MEMORY, priced(faster_memory(spec.gpu)), cluster),
    ]
    if _copies(window):
        found.append(entry(Resource.COPIES, priced(faster_copies(spec.gpu)), cluster))
    inside, between = faster_server(cluster), faster_network(cluster)
    if inside is not None and max(spec.servers) > 1:
        found.append(entry(Resource.LINKS, window.facts, inside))
    if len(spec.servers) > 1:
        found.append(entry(Resource.NETWORK, window.facts, between))
    found.append(entry(Resource.HOST, before.on(spec.gpu, None, faster_host(window.facts)), cluster))
    return found


def _copies(window: Window) -> bool:
    """Returns true if copies take a part of the step that a faster way could shorten."""
    steps = window.last - window.first
    least_ns = LEAST_COPIES * window.step_ns * steps
    return any(
        sum(one.solo_ns for one in rank if one.kind == records.SEGMENT and not one.contended_ns) >= least_ns > 0
        for rank in window.facts
    )


# ---- descriptions ------------------------------------------------------------------------------------------------


def faster_compute(gpu: Gpu) -> Gpu:
    """The GPU with faster arithmetic of all types."""
    return replace(gpu, peaks=tuple((dtype, FASTER * flops) for dtype, flops in gpu.peaks))


def faster_memory(gpu: Gpu) -> Gpu:
    """The GPU with faster memory and L2 cache."""
    achieved = replace(
        gpu.achieved, l2_gb_per_s=FASTER * gpu.achieved.l2_gb_per_s, sm_gb_per_s=FASTER * gpu.achieved.sm_gb_per_s
    )
    memory = replace(gpu.memory, bandwidth_gb_per_s=FASTER * gpu.memory.bandwidth_gb_per_s)
    return replace(gpu, memory=memory, achieved=achieved)


def faster_copies(gpu: Gpu) -> Gpu:
    """The GPU with faster ways to its host and, for copies, to other GPUs."""
    pcie = replace(
        gpu.pcie,
        pinned_gb_per_s=FASTER * gpu.pcie.pinned_gb_per_s,
        pageable_gb_per_s=FASTER * gpu.pcie.pageable_gb_per_s,
    )
    peer = None if gpu.peer_gb_per_s is None else FASTER * gpu.peer_gb_per_s
    return replace(gpu, pcie=pcie, peer_gb_per_s=peer)


def faster_server(cluster: Cluster) -> Cluster | None:
    """The cluster with faster NVLink and PCIe; None if the description does not separate them from the rest."""
    server = cluster.network.get("server")
    if not isinstance(server, dict):
        return None
    faster = _faster(server) | {key: server[key] for key in ("nic_gbps",) if key in server}
    return replace(cluster, network=cluster.network | {"server": faster})


def faster_network(cluster: Cluster) -> Cluster:
    """The cluster with faster NICs and links between servers."""
    network = {key: _faster(value) for key, value in cluster.network.items() if key != "server"}
    server = cluster.network.get("server")
    if isinstance(server, dict):
        network["server"] = server | _faster({key: server[key] for key in ("nic_gbps",) if key in server})
    return replace(cluster, network=network)


def _faster(table: Any) -> Any:
    """The table with all rates multiplied by FASTER."""
    if isinstance(table, list):
        return [_faster(one) for one in table]
    if not isinstance(table, dict):
        return table
    return {key: FASTER * value if key.endswith("gbps") else _faster(value) for key, value in table.items()}


# ---- facts -------------------------------------------------------------------------------------------------------


def faster_host(facts: Sequence[Facts]) -> list[Facts]:
    return [[_host(fact) for fact in rank] for rank in facts]


def _host(fact: Any) -> Any:
    if fact.kind == records.SEGMENT:
        launched_ns = fact.tail_ns - fact.tail_work_ns
        tail_ns = max(launched_ns // FASTER + fact.tail_work_ns, fact.solo_ns)
        return fact._replace(host_ns=fact.host_ns // FASTER, tail_ns=tail_ns)
    if sleeps(fact):
        return fact
    return fact._replace(host_ns=fact.host_ns // FASTER)


class Before:
    """The times of the window's segments on the run's own GPU, to be compared with those on another one."""

    def __init__(self, window: Window, contents: Contents, gpu: Gpu) -> None:
        self._window = window
        self._contents = contents
        self._gap_ns = gpu.achieved.launch_gap_ns
        self._loads = Loads(contents, self._own_cost)
        self._busy = [self._follow(gpu, self._loads, facts) for facts in window.facts]

    def on(self, gpu: Gpu, model: CostModel | None, facts: Sequence[Facts]) -> list[Facts]:
        """The facts with the segments' times on `gpu`: their kernels' costs there, at the clock that they find; the
        gaps between them stay. `model`: prices the kernels; None: their costs are unchanged. `facts`: the window's, or
        those of another host.
        """
        loads = self._loads if model is None else Loads(self._contents, self._costs_of(model))
        found = []
        for before, rank in zip(self._busy, facts, strict=True):
            pairs = iter(zip(before, self._follow(gpu, loads, rank), strict=True))
            found.append([self._as(fact, *next(pairs)) if fact.kind == records.SEGMENT else fact for fact in rank])
        return found

    def _follow(self, gpu: Gpu, loads: Loads, facts: Facts) -> list[Busy]:
        steps = self._window.last + 1
        return PowerClock(gpu, loads, self._window.step - steps).follow(facts, steps)

    def _own_cost(self, key: int) -> Cost | None:
        priced = self._contents.priced(key)
        return None if priced is None else priced.cost

    def _costs_of(self, model: CostModel) -> Callable[[int], Cost | None]:
        def cost(key: int) -> Cost | None:
            priced = self._contents.priced(key)
            return None if priced is None else model.cost(priced.signature)

        return cost

    def _as(self, segment: records.Segment, before: Busy, after: Busy) -> records.Segment:
        if not before.solo_ns:
            return segment
        work_ns, launches = self._loads.of(segment.content).solo_ns, self._contents.of(segment.content).total()
        gaps_ns = max(min(segment.solo_ns - round(work_ns), self._gap_ns * launches), 0)
        solo_ns = gaps_ns + round((segment.solo_ns - gaps_ns) * after.solo_ns / before.solo_ns)
        contended_ns = gaps_ns + round((segment.contended_ns - gaps_ns) * after.contended_ns / before.contended_ns)
        tail_work_ns = segment.tail_work_ns * solo_ns // segment.solo_ns
        tail_ns = max(segment.tail_ns - segment.tail_work_ns + tail_work_ns, solo_ns)
        contended_ns = max(contended_ns, solo_ns) if segment.contended_ns else 0
        return segment._replace(solo_ns=solo_ns, contended_ns=contended_ns, tail_ns=tail_ns, tail_work_ns=tail_work_ns)
