"""Where the GPUs' time goes: every cost signature with its launches, its time and the source of its cost."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

from phantora_async.ingest.costs import Costs
from phantora_async.ingest.launch_counts import NONE, Counts, LaunchCounts
from phantora_async.virtual_time import RankSnapshot
from profiles import Source, title

Document = dict[str, Any]


class RankCounts(NamedTuple):
    """What one rank launched in its window."""

    rank: int
    counts: Counts
    whole_run: bool
    """The window is the whole run: there are no steps, or the run ended before its steps were simulated."""


def window_counts(rank: RankSnapshot, launched: LaunchCounts) -> RankCounts:
    """Launches of the steps whose figures count, like the rank's other figures."""
    if rank.window is not None:
        counts = launched.between_steps(rank.window.first.number, rank.window.last.number)
        if counts is not None:
            return RankCounts(rank.rank, counts, False)
    return RankCounts(rank.rank, launched.total, True)


def kernels_document(ranks: Sequence[RankCounts], costs: Costs) -> Document:
    """``signatures``: all of them, by time over all ranks, longest first. ``ranks``: ranks that launched the same, with
    the launches of each signature in that order.
    """
    launches: Counter[int] = Counter()
    slowed_ns: Counter[int] = Counter()
    for rank in ranks:
        for key, counted in rank.counts.items():
            launches[key] += counted.launches
            slowed_ns[key] += counted.slowed_ns
    priced = [(key, costs.priced(key), count) for key, count in launches.items()]
    total_ns = {key: known.cost.solo_ns * count + slowed_ns[key] for key, known, count in priced}
    priced.sort(key=lambda one: (-total_ns[one[0]], one[1].signature))
    gpu_ns = sum(total_ns.values())
    signatures = [
        {
            "title": title(known.signature),
            "signature": known.signature,
            "launches": count,
            "total_ns": total_ns[key],
            "mean_ns": round(total_ns[key] / count),
            "full_clock_ns": known.cost.solo_ns,
            "contended_ns": known.cost.contended_ns,
            "flops": known.cost.flops,
            "share": total_ns[key] / gpu_ns if gpu_ns else 0.0,
            "source": known.cost.source.name.lower(),
            "model": known.cost.model,
            "error": known.cost.error_share,
            "bound": known.cost.bound,
        }
        for key, known, count in priced
    ]
    return {
        "window": "run" if any(rank.whole_run for rank in ranks) else "steps",
        "gpu_ns": gpu_ns,
        "slowed_ns": slowed_ns.total(),
        "signatures": signatures,
        "ranks": _groups(ranks, [key for key, _, _ in priced]),
    }


def _groups(ranks: Sequence[RankCounts], order: Sequence[int]) -> list[Document]:
    """Ranks with equal counts share an entry: those of a data-parallel group usually do."""
    alike: dict[tuple[int, ...], list[int]] = {}
    for rank in ranks:
        alike.setdefault(tuple(rank.counts.get(key, NONE).launches for key in order), []).append(rank.rank)
    return [{"ranks": members, "launches": list(launches)} for launches, members in alike.items()]


def source_shares(totals: Sequence[Counts], costs: Costs) -> Document:
    """Shares of the GPU time of all launches of the run, by where their cost comes from, and that time."""
    by_source = dict.fromkeys(Source, 0)
    for counts in totals:
        for key, (launches, slowed_ns) in counts.items():
            cost = costs.priced(key).cost
            by_source[cost.source] += cost.solo_ns * launches + slowed_ns
    total_ns = sum(by_source.values())
    shown = [source for source in Source if source is not Source.UNRECOGNISED or by_source[source]]
    shares = {source.name.lower(): by_source[source] / total_ns if total_ns else 0.0 for source in shown}
    return shares | {"gpu_ns": total_ns}
