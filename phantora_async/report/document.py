"""Builds the report's JSON document from a snapshot of the run, complete or not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import orjson

import netsim
from phantora_async.faults import begin_ns
from phantora_async.figures import has_steps
from phantora_async.ingest.costs import Costs
from phantora_async.ingest.fact_builder import FactBuilder, RankInfo
from phantora_async.ingest.launch_counts import Counts
from phantora_async.over_time import Activity, Traffic, activity_document, links_document
from phantora_async.report.calls import calls_document
from phantora_async.report.generation import generation_document
from phantora_async.report.guests import GpuUse, seats_of
from phantora_async.report.interval import interval, kernel_error, step_parts
from phantora_async.report.kernel_lines import add_lines
from phantora_async.report.kernels import (
    WindowCounts,
    gpu_use_document,
    kernels_document,
    source_shares,
    together,
    window_counts,
)
from phantora_async.report.loading import loading_document
from phantora_async.report.logged import Log, logged_rates
from phantora_async.report.memory import memory_document
from phantora_async.report.modules import modules_document, speakers
from phantora_async.report.routing import routing_document
from phantora_async.report.simulator import Usage
from phantora_async.report.start import start_document
from phantora_async.report.stated_values import (
    checkpoint_warnings,
    checkpoints_document,
    decided_document,
    sizes_document,
    stated_document,
    total_of,
)
from phantora_async.report.steps import step_document
from phantora_async.run_spec import RunSpec
from phantora_async.spending.energy import Launched, energy_document
from phantora_async.virtual_time import GenerationNote, MemoryPeaks, RankSnapshot, Snapshot
from phantora_async.virtual_time.snapshot import SimulatorFigures
from phantora_async.wording import utf8
from profiles import Source

SCHEMA = 1
MOST_WARNINGS = 500
"""The most different warnings that the report lists."""
Document = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Seen:
    """The state of virtual time and of the network at one instant that the report shows."""

    snapshot: Snapshot
    activity: Activity
    generation: Mapping[int, Sequence[GenerationNote]]
    """See ``Timeline.generation``."""
    traffic: Traffic
    links: Sequence[netsim.Link]
    """The links of ``traffic``."""
    restarts: Sequence[Document] = ()
    reasons: Document | None = None
    """The reasons why a step takes as long as it does; None: not asked for, or not known."""
    folding: Document | None = None
    """The ranks of a folded run that had processes; None: the run is not folded."""


def build(
    spec: RunSpec,
    seen: Seen,
    fact_builder: FactBuilder,
    usage: Usage,
    exit_code: int = 0,
    failure: Document | None = None,
    stopped: Document | None = None,
) -> Document:
    """The whole document. `failure` says why the run failed, `stopped` which option ended it; None if none did."""
    snapshot, traffic = seen.snapshot, seen.traffic
    figures = snapshot.simulator
    simulated = _simulated(spec, seen, fact_builder, exit_code == 0) | {
        "restarts": list(seen.restarts),
        "activity": activity_document(seen.activity),
        "links": links_document(snapshot.now_ns, seen.links, traffic),
    }
    if seen.reasons is not None:
        simulated["reasons"] = seen.reasons
    return {
        "schema": SCHEMA,
        "exit_code": exit_code,
        "failure": failure,
        "stopped": stopped,
        **({} if seen.folding is None else {"folding": seen.folding}),
        "simulated": simulated,
        "loading": loading_document(
            spec,
            [info.loaders for info in fact_builder.rank_info],
            [rank.steps for rank in snapshot.ranks],
            simulated["step"],
        ),
        "start": start_document(fact_builder.communicators.by_id.values(), spec.servers, spec.nccl.version),
        "simulator": usage.document()
        | {
            "rank_cpu": _rank_cpu(spec, fact_builder),
            "facts": figures.facts,
            "emulated_calls": sum(rank.counters.api_calls for rank in snapshot.ranks),
            "emulated_ops": sum(rank.counters.ops for rank in snapshot.ranks),
            "speculation": _speculation(figures),
            "kept": _kept(fact_builder),
        },
    }


def _kept(fact_builder: FactBuilder) -> Document | None:
    """The data that the ranks kept so that it could be read back; None if no rank reported any."""
    kept = fact_builder.kept
    if kept is None:
        return None
    return {"peak_nbytes": kept.peak, "limit_nbytes": kept.budget, "refused_nbytes": kept.refused}


def _rank_cpu(spec: RunSpec, fact_builder: FactBuilder) -> Document:
    """The processor time of all ranks that have ended by themselves. `hook_s`: the part of it that the hook library's
    own threads used.
    """
    live = range(spec.world_size) if spec.folding is None else spec.folding.live
    infos = (fact_builder.rank_info[rank] for rank in live)
    used = [info.processor for info in infos if info.processor.user_ns]
    return {
        "ranks": len(used),
        "user_s": round(sum(one.user_ns for one in used) / 1e9, 3),
        "system_s": round(sum(one.system_ns for one in used) / 1e9, 3),
        "hook_s": round(sum(one.reader_ns for one in used) / 1e9, 3),
    }


def _speculation(figures: SimulatorFigures) -> Document:
    """The work that was simulated ahead and rolled back."""
    return {
        "turns": figures.events,
        "turns_taken_back": figures.events_taken_back,
        "rollbacks": figures.rollbacks,
    }


def to_json(document: Document) -> bytes:
    """JSON with sorted keys and indentation, so that diff can compare two reports."""
    option = orjson.OPT_SORT_KEYS | orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE
    try:
        return orjson.dumps(document, option=option)
    except TypeError:  # a path or an argument that is not UTF-8
        return orjson.dumps(utf8(document), option=option)


def _simulated(spec: RunSpec, seen: Seen, fact_builder: FactBuilder, ended_well: bool) -> Document:
    snapshot = seen.snapshot
    ranks = ranks_document(spec, snapshot, fact_builder)
    costs, reads, sharing = fact_builder.costs, fact_builder.reads, fact_builder.sharing

    checkpoints = checkpoints_document(reads, sharing)
    warnings = checkpoint_warnings(checkpoints) + [
        {"text": text, "ranks": list(counts), "count": sum(counts.values())}
        for text, warned in sorted(fact_builder.warnings.items())[:MOST_WARNINGS]
        for counts in (warned.by_rank(sharing),)
    ]
    # Kernels, cost sources and energy are of one window, so that their figures can be compared.
    launched = [info.launches for info in fact_builder.rank_info]
    window = window_counts(snapshot.ranks, launched)
    counted = [rank.counts for rank in window.ranks]
    kernels = kernels_document(window, costs) | {"launch_gap_ns": spec.gpu.achieved.launch_gap_ns}
    add_lines(kernels["signatures"], costs, fact_builder)
    calls = window_counts(snapshot.ranks, [info.calls for info in fact_builder.rank_info])
    step = step_document(snapshot)
    gpu_use = GpuUse(
        seats_of(spec.servers),
        [info.placed for info in fact_builder.rank_info],
        fact_builder.timeline_of,
        [rank.gpu_memory for rank in snapshot.ranks],
    )
    memory = memory_document(
        (spec.gpu.memory.total_nbytes, spec.gpu.memory.total_nbytes - spec.gpu.memory.reserved_nbytes),
        ranks,
        [info.held_memory for info in fact_builder.rank_info],
        fact_builder.site,
        ended_well,
        gpu_use.guests(),
        spec.gpu.memory.context_nbytes,
        gpu_use.together(spec.gpu.memory.context_nbytes, spec.gpu.memory.reserved_nbytes),
        [info.held_by_children for info in fact_builder.rank_info],
    )
    return {
        "faults": _faults(spec, snapshot.now_ns),
        "world_size": len(ranks),
        "servers": list(spec.servers),
        "gpu": spec.gpu.name,
        "cluster": spec.cluster.name,
        "assumed_links": spec.assumed_links,
        **({"congestion": spec.cluster.queues} if spec.cluster.queues else {}),
        "host": spec.host.name,
        "host_mode": spec.host_mode,
        "gpu_use": gpu_use_document(snapshot.ranks, fact_builder.rank_info, fact_builder.user_of_gpu),
        "independent": independent(snapshot, fact_builder),
        "virtual_ns": snapshot.now_ns,
        "collectives": snapshot.collectives,
        "step": step | {"interval": _interval(spec, step, ranks, kernels)},
        "work": _work(spec, ranks) | {"unknown_share": _unknown_share(kernels)},
        "logged": logged_rates([_log(spec, snapshot, fact_builder, rank) for rank in (0, len(ranks) - 1)]),
        "cost_sources": {"window": window.window} | source_shares(counted, costs) | _unrecognised(costs, counted),
        "cost_sources_whole_run": source_shares([one.total for one in launched], costs),
        "kernel_times": [
            {
                "file": times.file.name,
                "gpu": times.on.gpu.device_name,
                "signatures": len(times.on.table.times),
                "carried_over": times.carried_over(spec.gpu),
            }
            for times in spec.kernel_times
        ],
        "kernels": kernels,
        "calls": calls_document(calls),
        "modules": modules_document(
            speakers([info.modules for info in fact_builder.rank_info], fact_builder.sharing),
            costs,
            fact_builder.rank_info[memory["fullest"]["rank"]].modules,
        ),
        "energy": _energy(spec, step, ranks, window, costs),
        "memory": memory,
        "unmodelled_reads": sum(rank.counters.unmodelled_reads for rank in snapshot.ranks),
        "refused_calls": sum(rank.counters.refused_calls for rank in snapshot.ranks),
        "routing": routing_document(spec.routing, fact_builder.routing, sharing),
        "data_shapes": sizes_document(spec.data_shapes, reads, sharing),
        **(
            {
                "generation": generation_document(
                    spec.lengths, fact_builder.generated, snapshot.ranks, seen.generation, snapshot.now_ns, sharing
                )
            }
            if spec.lengths or seen.generation
            else {}
        ),
        "checkpoints": checkpoints,
        "stated_values": stated_document(spec.values, reads, sharing),
        "decided": decided_document(reads, sharing),
        "overflow_checks": total_of(reads.checks.items(), sharing),
        "warnings": warnings,
        "warnings_left_out": max(len(fact_builder.warnings) - MOST_WARNINGS, 0),
        "ranks": ranks,
    }


def independent(snapshot: Snapshot, fact_builder: FactBuilder) -> bool:
    """Returns true if there are several ranks, and none of them has ever been in a process group."""
    return len(snapshot.ranks) > 1 and not snapshot.collectives and all(info.alone for info in fact_builder.rank_info)


def _energy(
    spec: RunSpec, step: Document, ranks: Sequence[Document], window: WindowCounts[int], costs: Costs
) -> Document | None:
    """The energy that the GPUs draw; None if it is not known."""
    of_counts = {
        id(counts): [
            Launched(costs.priced(key).cost, count.launches, count.slowed_ns) for key, count in sorted(counts.items())
        ]
        for counts, _ in together(rank.counts for rank in window.ranks)
    }
    launched = [of_counts[id(rank.counts)] for rank in window.ranks]
    step_ns = int(step["median_ns"]) if has_steps(step) else None
    return energy_document(spec.gpu, ranks, launched, step_ns)


def _faults(spec: RunSpec, now_ns: int) -> list[Document]:
    """The faults in order of time. `reached`: their first effect was before the run's end."""
    listed = [
        {"text": str(fault), "at_ns": begin_ns(fault), "reached": begin_ns(fault) <= now_ns} for fault in spec.faults
    ]
    return sorted(listed, key=lambda one: (one["at_ns"], one["text"]))


def _log(spec: RunSpec, snapshot: Snapshot, fact_builder: FactBuilder, rank: int) -> Log:
    window = snapshot.ranks[rank].window
    counted = None if window is None else (window.first.number, window.last.number)
    return Log(rank, spec.run_dir / f"rank{rank}.log", fact_builder.rank_info[rank].log_ends, counted)


def _interval(spec: RunSpec, step: Document, ranks: Sequence[Document], kernels: Document) -> Document | None:
    """The range around the step time; None if no steps were found."""
    parts = step_parts(step["median_ns"], ranks)
    if parts is None:
        return None
    host = None if spec.host_mode == "none" else spec.host
    of_kernels = kernel_error(kernels["signatures"], spec.gpu.achieved.uncertainty)
    return interval(parts, of_kernels, host, len(ranks)).document()


def ranks_document(spec: RunSpec, snapshot: Snapshot, fact_builder: FactBuilder) -> list[Document]:
    return [
        _rank(rank, snapshot.now_ns, server, _peaks(rank.memory, info))
        for rank, server, info in zip(snapshot.ranks, spec.server_of, fact_builder.rank_info, strict=True)
    ]


def _peaks(reached: MemoryPeaks, info: RankInfo) -> MemoryPeaks:
    """The peaks of memory in the whole run. `reached`: those that virtual time has come to. A rank that failed has
    ended the run before virtual time came to its last records, and a rank that was stopped may have reached none: then
    the peaks that they reported count. So do the peaks of a process that was ended without a report, or that was left
    behind by a run that failed before the end of its first step.
    """
    failed = info.bye is not None and info.bye.exit_code != 0
    return (info.told_memory if failed or not any(reached) else reached).largest(info.memory_at_end)


def _rank(rank: RankSnapshot, now_ns: int, server: int, memory: MemoryPeaks) -> Document:
    """The figures of one rank. Time shares and work are those of its steps that count, or of the whole run if there are
    none; `memory`: the peaks of the whole run. `counted_steps`: first and last; the step that ends at the marker of
    number 0 is step 1.
    """
    counters, shares, window_ns = rank.counters, rank.shares, now_ns
    launches, flops, host_work_ns = counters.launches, counters.flops, counters.host_work_ns
    if rank.window is not None:
        first, last = rank.window
        window_ns = last.device_ns - first.device_ns
        shares = last.shares.since(first.shares)
        launches = last.counters.launches - first.counters.launches
        flops = last.counters.flops - first.counters.flops
        host_work_ns = last.counters.host_work_ns - first.counters.host_work_ns
    return {
        "rank": rank.rank,
        "server": server,
        "steps": rank.steps,
        "window": "run" if rank.window is None else "steps",
        "window_ns": window_ns,
        "counted_steps": None if rank.window is None else [rank.window.first.number + 2, rank.window.last.number + 1],
        **shares._asdict(),
        "host_work_ns": host_work_ns,
        "launches": launches,
        "flops": flops,
        "memory": {
            "allocated_peak_nbytes": memory.allocated,
            "reserved_peak_nbytes": memory.reserved,
            "device_peak_nbytes": memory.device,
        },
    }


def _work(spec: RunSpec, ranks: Sequence[Document]) -> Document:
    """The arithmetic that was done, compared with the GPUs' peak in the same time."""
    flops = sum(rank["flops"] for rank in ranks)
    gpu_s = sum(rank["window_ns"] for rank in ranks) / 1e9
    rate = flops / gpu_s if gpu_s else 0.0
    peak = spec.gpu.peak_flops("bf16")
    return {"flops": flops, "tflops_per_gpu": rate / 1e12, "mfu": rate / peak, "peak_tflops": peak / 1e12}


def _unknown_share(kernels: Document) -> float:
    """The share of the GPU time in kernels whose amount of arithmetic is not known."""
    unknown_ns = sum(
        one["total_ns"]
        for one in kernels["signatures"]
        if one["source"] == "unrecognised" or (one["signature"].startswith("library;") and not one["flops"])
    )
    return unknown_ns / kernels["gpu_ns"] if kernels["gpu_ns"] else 0.0


def _unrecognised(costs: Costs, totals: Sequence[Counts]) -> Document:
    """The unrecognised signatures, if there are any: what is not known of them, and their share of the GPU time."""
    unrecognised = costs.unrecognised
    if not unrecognised:
        return {}
    gpu_ns, by_reason = 0, dict.fromkeys(unrecognised, 0)
    bounds: set[str] = set()
    for counts, ranks in together(totals):
        for key, (launches, slowed_ns) in counts.items():
            cost = costs.priced(key).cost
            total_ns = (cost.solo_ns * launches + slowed_ns) * ranks
            gpu_ns += total_ns
            if cost.source is Source.UNRECOGNISED:
                by_reason[cost.unknown] += total_ns
                if cost.at_least:
                    bounds.add(cost.unknown)
    reasons = [
        {
            "reason": reason,
            "signatures": noted.signatures,
            "example": noted.example,
            "share": by_reason[reason] / gpu_ns if gpu_ns else 0.0,
            "at_least": reason in bounds,
        }
        for reason, noted in sorted(unrecognised.items())[:MOST_WARNINGS]
    ]
    return {"unrecognised_signatures": reasons}
