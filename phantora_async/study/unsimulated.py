"""Finds what a report shows to be slow and no simulation can mend: the program has to be written in another way."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from phantora_async.figures import HOST_WORK, STEP_TIME
from phantora_async.report.gpu_work import WorkRow, kernel_rows
from phantora_async.report.loading import loading_binds
from phantora_async.report.text import shares

LEAST = 0.03
"""The share of GPU work, or of a step, from which something is said."""
HOST_BINDS = 0.9
"""The share of a step from which on the host's own work is what makes it so long."""
MOST_LINES = 3
"""The most lines of a script that one reason names."""
Document = Mapping[str, Any]


def reasons(report: Document) -> Iterator[str]:
    """Yields sentences, each with its share of the GPUs' work or of the step."""
    simulated = report["simulated"]
    if simulated["kernels"]["gpu_ns"]:
        yield from _of_work(kernel_rows(simulated))
    if loading_binds(report.get("loading")):
        yield "the step waits for data: more workers, pinned memory, or batches that are prepared before"
    yield from _of_host(simulated)
    peers = _share(simulated, "peers")
    if peers >= LEAST:
        yield (
            f"GPUs wait for their peers for {peers:.1%} of their time: ranks whose work or whose host takes longer "
            "than that of others (the table of ranks, --reasons)"
        )


def _of_work(rows: Sequence[WorkRow]) -> Iterator[str]:
    def of(*words: str) -> float:
        return sum(row.share for row in rows if any(word in f"{row.family} {row.title}" for word in words))

    if (unaligned := of("gemm, unaligned")) >= LEAST:
        yield (
            f"{unaligned:.1%} of GPU work are products of sizes that tensor cores do not take: pad vocabulary, widths "
            "and batches to multiples of 64"
        )
    pieces = of("aten::_softmax)", "aten::_softmax_backward_data)", "aten::bmm)", "aten::baddbmm)")
    if not of("attention") and of("aten::bmm)", "aten::baddbmm)") and of("aten::_softmax)") and pieces >= LEAST:
        yield (
            f"{pieces:.1%} of GPU work are softmax and batched products, and there is no attention kernel: "
            "scaled_dot_product_attention does this in one kernel"
        )
    if (double := of("gemm f64")) >= LEAST:
        yield f"{double:.1%} of GPU work are products of FP64: FP32 suffices for training"
    if (pageable := of("pageable")) >= LEAST:
        yield f"{pageable:.1%} of GPU work are copies of pageable memory: pin_memory() and non_blocking=True"


def _of_host(simulated: Document) -> Iterator[str]:
    """Yields why GPUs wait for their hosts. Without its waits for the GPU, a host still has its own work to do in a
    step, so that work limits what the waits can cost.
    """
    idle = _share(simulated, "host_bound")
    if idle < LEAST:
        return
    works = min((HOST_WORK.value(simulated) or 0.0) / (STEP_TIME.value(simulated) or 1.0), 1.0)
    if works >= HOST_BINDS:
        launches = sum(row.launches for row in kernel_rows(simulated))
        yield (
            f"the host's own work takes {works:.0%} of the step, with {launches:,.0f} launches: fewer of them "
            "(torch.compile, CUDA graphs, a fused optimizer) or more work in each (a larger batch)"
        )
    waits = [one for one in simulated.get("calls", {}).get("waits", ()) if "(via torch/" not in one["site"]]
    lost = min(idle, 1 - works)
    if waits and lost >= LEAST:
        most = sorted(waits, key=lambda one: -one["calls"])[:MOST_LINES]
        lines = ", ".join(f"{one['site']} `{one['code']}`" for one in most)
        yield (
            "the host waits for the GPU, which waits for the host afterwards "
            f"({lost:.1%} of the step at most): at {lines}"
        )


def _share(simulated: Document, name: str) -> float:
    """The share of the time of all GPUs that is booked on an account."""
    ranks = simulated["ranks"]
    return sum(shares(one)[name] for one in ranks) / len(ranks) if ranks else 0.0
