"""Builds the report's JSON document from what is left of a run, complete or not."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import orjson

from phantora_async.ingest.fact_builder import FactBuilder
from phantora_async.report.simulator import Usage
from phantora_async.report.steps import step_document
from phantora_async.run_spec import RunSpec
from phantora_async.virtual_time import Timeline
from phantora_async.virtual_time.entities import Host

SCHEMA = 1
Document = dict[str, Any]
SHARES = ("compute_ns", "transfer_ns", "peers_ns", "host_bound_ns", "idle_ns", "communication_ns")
"""Of a rank's window: computing; communication that nothing hides, moving data and waiting for peers; the GPU empty
while the host works; neither. communication_ns is all time with a communication kernel on the GPU, hidden or not."""
LAUNCHES, MEASURED, INTERPOLATED, ROOFLINE, FLOPS, API_CALLS, OPS, READS, REFUSED = range(9)
"""Places in COUNTERS."""


def build(
    spec: RunSpec, timeline: Timeline, fact_builder: FactBuilder, usage: Usage, exit_code: int, failure: Document | None
) -> Document:
    """The whole document; `failure` says why the run ended early."""
    calls = [sum(int(host.counters[place]) for host in timeline.hosts) for place in (API_CALLS, OPS)]
    return {
        "schema": SCHEMA,
        "exit_code": exit_code,
        "failure": failure,
        "simulated": _simulated(spec, timeline, fact_builder),
        "simulator": usage.document()
        | {"facts": timeline.facts_done, "emulated_calls": calls[0], "emulated_ops": calls[1]}
        | {"speculation": _speculation(timeline)},
    }


def _speculation(timeline: Timeline) -> Document:
    """What was simulated ahead and taken back, and answers of ``--clock optimistic`` that were wrong."""
    rollback_log, revisions = timeline.rollback_log, timeline.answer_release.revisions
    return {
        "turns": timeline.turns,
        "turns_taken_back": rollback_log.turns,
        "rollbacks": rollback_log.rollbacks,
        "early_answers": revisions.early,
        "revised_answers": revisions.revised,
        "revised_states": revisions.states,
        "revised_max_ns": revisions.max_ns,
        "revised_sum_ns": revisions.sum_ns,
    }


def to_json(document: Document) -> bytes:
    """Sorted keys, indented, so that two reports can be compared with diff."""
    return orjson.dumps(document, option=orjson.OPT_SORT_KEYS | orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)


def _simulated(spec: RunSpec, timeline: Timeline, fact_builder: FactBuilder) -> Document:
    ranks = [_rank(host, timeline, server) for host, server in zip(timeline.hosts, spec.server_of, strict=True)]
    warnings = [
        {"text": text, "ranks": sorted(warned.ranks), "count": warned.count}
        for text, warned in sorted(fact_builder.warnings.items())
    ]
    return {
        "world_size": len(ranks),
        "servers": list(spec.servers),
        "gpu": spec.gpu.name,
        "cluster": spec.cluster.name,
        "host": spec.host.name,
        "host_mode": spec.host_mode,
        "virtual_ns": timeline.now_ns,
        "collectives": timeline.collectives.begun,
        "step": step_document(timeline),
        "work": _work(spec, ranks),
        "cost_sources": _cost_sources(timeline.hosts),
        "memory": {
            "capacity_nbytes": spec.gpu.memory.total_nbytes - spec.gpu.memory.reserved_nbytes,
            "max_allocated_nbytes": max(rank["memory"]["allocated_peak_nbytes"] for rank in ranks),
            "max_reserved_nbytes": max(rank["memory"]["reserved_peak_nbytes"] for rank in ranks),
        },
        "unmodelled_reads": sum(int(host.counters[READS]) for host in timeline.hosts),
        "refused_calls": sum(int(host.counters[REFUSED]) for host in timeline.hosts),
        "warnings": warnings,
        "ranks": ranks,
    }


def _rank(host: Host, timeline: Timeline, server: int) -> Document:
    recordings = timeline.steps.measured(host.rank)
    if recordings is not None:
        first, last = recordings
        shares = [b - a for a, b in zip(first.shares, last.shares, strict=True)]
        work = [b - a for a, b in zip(first.counters, last.counters, strict=True)]
        window_ns = last.device_ns - first.device_ns
    else:
        shares = _totals(host, timeline.now_ns)
        work = list(host.counters)
        window_ns = timeline.now_ns
    peaks = [max((peak[place] for peak in host.memory.values()), default=0) for place in range(3)]
    return {
        "rank": host.rank,
        "server": server,
        "steps": host.steps,
        "window": "steps" if recordings is not None else "run",
        "window_ns": window_ns,
        **dict(zip(SHARES, shares, strict=True)),
        "launches": int(work[LAUNCHES]),
        "flops": float(work[FLOPS]),
        "memory": {
            "allocated_peak_nbytes": peaks[0],
            "reserved_peak_nbytes": peaks[1],
            "device_peak_nbytes": peaks[2],
        },
    }


def _totals(host: Host, now_ns: int) -> list[int]:
    totals = [0] * len(SHARES)
    for device in host.used:
        device.account(now_ns)
        totals = [total + share for total, share in zip(totals, device.shares(), strict=True)]
    return totals


def _work(spec: RunSpec, ranks: Sequence[Document]) -> Document:
    """Arithmetic done, against what the GPUs could have done in the same time."""
    flops = sum(rank["flops"] for rank in ranks)
    gpu_s = sum(rank["window_ns"] for rank in ranks) / 1e9
    rate = flops / gpu_s if gpu_s else 0.0
    peak = spec.gpu.peak_flops("bf16")
    return {"flops": flops, "tflops_per_gpu": rate / 1e12, "mfu": rate / peak, "peak_tflops": peak / 1e12}


def _cost_sources(hosts: Sequence[Host]) -> Document:
    """Shares of all GPU time that was ever launched, by where its cost came from."""
    sums = [sum(host.counters[place] for host in hosts) for place in (MEASURED, INTERPOLATED, ROOFLINE)]
    total = sum(sums)
    shares = [share / total if total else 0.0 for share in sums]
    return dict(zip(("measured", "interpolated", "roofline"), shares, strict=True)) | {"gpu_ns": int(total)}
