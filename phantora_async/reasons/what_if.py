"""How long the step would take if one resource were twice as fast: the same facts, executed with other durations.

GPU work is priced again for a GPU with the other figures, collectives are planned again for a network with the other
rates, and host time is halved. Work that depends on it (which algorithm NCCL chooses, who waits for whom, what overlaps
what) follows. Not followed: the clock under the GPU's power limit, and time that the program sleeps.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from emu.contract import records
from phantora_async.reasons.contents import Contents
from phantora_async.reasons.replay import play, step_instants
from phantora_async.reasons.window import Facts, Window
from phantora_async.run_spec import RunSpec
from phantora_async.virtual_time import NetworkModel
from profiles import Cluster, CostModel, Gpu

FASTER = 2
NetworkOf = Callable[[Cluster], NetworkModel]
"""A network model of the run's servers in this cluster."""
_SLEEP_NBYTES = len(records.HostAdvance.encode(0))
"""Of a HOST_ADVANCE that a rank has sent. Others stand for records of which virtual time needs the host time alone."""


def what_if(window: Window, spec: RunSpec, contents: Contents, network_of: NetworkOf) -> list[dict[str, Any]]:
    """One entry for each resource. Raises NoStepError."""
    cluster, depth = spec.cluster, spec.host.queue_depth

    def entry(resource: str, facts: Sequence[Facts], cluster: Cluster) -> dict[str, Any]:
        begin_ns, end_ns = step_instants(window, play(window, facts, network_of(cluster), depth))
        return {"resource": resource, "ns": end_ns - begin_ns}

    def priced(gpu: Gpu) -> list[Facts]:
        return priced_for(window.facts, contents, spec.gpu, CostModel(gpu, *(times.on for times in spec.kernel_times)))

    found = [
        entry("GPU compute", priced(faster_compute(spec.gpu)), cluster),
        entry("GPU memory", priced(faster_memory(spec.gpu)), cluster),
    ]
    inside, between = faster_server(cluster), faster_network(cluster)
    if inside is not None and max(spec.servers) > 1:
        found.append(entry("links in servers", window.facts, inside))
    if len(spec.servers) > 1:
        found.append(entry("network between servers", window.facts, between))
    found.append(entry("host", faster_host(window.facts), cluster))
    return found


# ---- descriptions ------------------------------------------------------------------------------------------------


def faster_compute(gpu: Gpu) -> Gpu:
    """All arithmetic."""
    return replace(gpu, peaks=tuple((dtype, FASTER * flops) for dtype, flops in gpu.peaks))


def faster_memory(gpu: Gpu) -> Gpu:
    """The memory and the L2 cache."""
    achieved = replace(
        gpu.achieved, l2_gb_per_s=FASTER * gpu.achieved.l2_gb_per_s, sm_gb_per_s=FASTER * gpu.achieved.sm_gb_per_s
    )
    memory = replace(gpu.memory, bandwidth_gb_per_s=FASTER * gpu.memory.bandwidth_gb_per_s)
    return replace(gpu, memory=memory, achieved=achieved)


def faster_server(cluster: Cluster) -> Cluster | None:
    """NVLink and PCIe; None if the description does not tell them from the rest."""
    server = cluster.network.get("server")
    if not isinstance(server, dict):
        return None
    faster = _faster(server) | {key: server[key] for key in ("nic_gbps",) if key in server}
    return replace(cluster, network=cluster.network | {"server": faster})


def faster_network(cluster: Cluster) -> Cluster:
    """NICs and what joins them."""
    network = {key: _faster(value) for key, value in cluster.network.items() if key != "server"}
    server = cluster.network.get("server")
    if isinstance(server, dict):
        network["server"] = server | _faster({key: server[key] for key in ("nic_gbps",) if key in server})
    return replace(cluster, network=network)


def _faster(table: Any) -> Any:
    """The same with all rates FASTER times as high."""
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
    if fact.kind == records.HOST_ADVANCE and fact.nbytes <= _SLEEP_NBYTES:
        return fact
    return fact._replace(host_ns=fact.host_ns // FASTER)


def priced_for(facts: Sequence[Facts], contents: Contents, gpu: Gpu, other: CostModel) -> list[Facts]:
    """Segments take the time that their kernels cost by the other model; the gaps between them stay."""
    reprice = _Repricing(contents, gpu, other)
    return [[reprice.segment(fact) if fact.kind == records.SEGMENT else fact for fact in rank] for rank in facts]


class _Repricing:
    def __init__(self, contents: Contents, gpu: Gpu, other: CostModel) -> None:
        self._contents = contents
        self._gap_ns = gpu.achieved.launch_gap_ns
        self._other = other
        self._known: dict[tuple[int, int, int, int], tuple[int, int, int]] = {}

    def segment(self, segment: records.Segment) -> records.Segment:
        durations = segment.content, segment.solo_ns, segment.contended_ns, segment.tail_work_ns
        found = self._known.get(durations)
        if found is None:
            found = self._known[durations] = self._durations(segment)
        solo_ns, contended_ns, tail_work_ns = found
        tail_ns = max(segment.tail_ns - segment.tail_work_ns + tail_work_ns, solo_ns)
        return segment._replace(solo_ns=solo_ns, contended_ns=contended_ns, tail_ns=tail_ns, tail_work_ns=tail_work_ns)

    def _durations(self, segment: records.Segment) -> tuple[int, int, int]:
        solo_ns = contended_ns = other_solo_ns = other_contended_ns = launches = 0
        for key, count in self._contents.of(segment).items():
            priced = self._contents.priced(key)
            launches += count
            if priced is not None:
                cost, other = priced.cost, self._other.cost(priced.signature)
                solo_ns += count * cost.solo_ns
                contended_ns += count * cost.contended_ns
                other_solo_ns += count * other.solo_ns
                other_contended_ns += count * other.contended_ns
        if not solo_ns:
            return segment.solo_ns, segment.contended_ns, segment.tail_work_ns
        gaps_ns = min(segment.solo_ns - solo_ns, self._gap_ns * launches) if segment.solo_ns > solo_ns else 0
        solo = gaps_ns + (segment.solo_ns - gaps_ns) * other_solo_ns // solo_ns
        contended = gaps_ns + (segment.contended_ns - gaps_ns) * other_contended_ns // contended_ns
        tail_work = segment.tail_work_ns * solo // segment.solo_ns
        return solo, max(contended, solo), tail_work
