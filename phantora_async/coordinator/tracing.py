"""Decides which ranks are traced: those that `--trace` asks for, and those whose scripts start a profiler."""

from __future__ import annotations

from phantora_async.coordinator.network_model import NetsimNetworkModel
from phantora_async.ingest.fact_builder import FactBuilder
from phantora_async.run_spec import RunSpec
from phantora_async.trace.run_trace import RunTrace
from phantora_async.trace.writing import Context
from phantora_async.virtual_time import Timeline


def trace_of(spec: RunSpec, timeline: Timeline, fact_builder: FactBuilder, network: NetsimNetworkModel) -> RunTrace:
    """The run's trace, of the ranks that `--trace` asks for."""

    def pid(rank: int) -> int:
        hello = fact_builder.rank_info[rank].hello
        return hello.pid if hello is not None else 0

    traced = spec.trace.chosen() if spec.trace is not None else frozenset[int]()
    trace = RunTrace(spec, fact_builder, Context(fact_builder.costs, network.plan, pid, network.link_names, traced))
    timeline.listen(trace, trace.ranks)
    return trace


def trace_profiled(trace: RunTrace, timeline: Timeline, fact_builder: FactBuilder) -> None:
    """Ranks whose scripts have started a profiler are traced from now on."""
    if not fact_builder.profiled <= trace.ranks:
        trace.ranks |= fact_builder.profiled
        timeline.listen(trace, trace.ranks)
