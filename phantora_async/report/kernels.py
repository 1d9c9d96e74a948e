"""Reports which ranks used their GPUs, and where the GPUs' time goes: every cost signature with its launches, its time
and the source of its cost.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Generic, NamedTuple

from phantora_async.ingest.costs import Costs
from phantora_async.ingest.fact_builder import RankInfo
from phantora_async.ingest.launch_counts import NONE, Counts, Key, Launched, StepCounts
from phantora_async.virtual_time import RankSnapshot
from profiles import Source, title

Document = dict[str, Any]


class RankCounts(NamedTuple, Generic[Key]):
    """The launches of one rank in its window."""

    rank: int
    counts: Mapping[Key, Launched]


class WindowCounts(NamedTuple, Generic[Key]):
    """The launches of all ranks in one window."""

    window: str
    """`steps`: the steps whose figures count. `run`: everything that ranks have reported, because some rank has no such
    steps, or has gone on beyond those that were simulated.
    """
    ranks: Sequence[RankCounts[Key]]


def window_counts(ranks: Sequence[RankSnapshot], launched: Sequence[StepCounts[Key]]) -> WindowCounts[Key]:
    """The launches of all ranks in one common window: sums of a step of one rank and the whole run of another would
    mean nothing.
    """
    in_steps = []
    known: dict[tuple[int, int, int], Mapping[Key, Launched] | None] = {}
    for rank in ranks:
        counts = None
        if rank.window is not None:
            its, first, last = launched[rank.rank], rank.window.first.number, rank.window.last.number
            if (id(its), first, last) not in known:
                known[id(its), first, last] = its.between_steps(first, last)
            counts = known[id(its), first, last]
        if counts is None:
            return WindowCounts("run", [RankCounts(one.rank, launched[one.rank].total) for one in ranks])
        in_steps.append(RankCounts(rank.rank, counts))
    return WindowCounts("steps", in_steps)


def together(of_ranks: Iterable[Mapping[Key, Launched]]) -> list[tuple[Mapping[Key, Launched], int]]:
    """Each different count once, with the number of ranks that have it: ranks that share a timeline share their counts,
    too.
    """
    found: dict[int, tuple[Mapping[Key, Launched], int]] = {}
    for counts in of_ranks:
        _, ranks = found.get(id(counts), (counts, 0))
        found[id(counts)] = counts, ranks + 1
    return list(found.values())


def kernels_document(window: WindowCounts[int], costs: Costs) -> Document:
    """The kernels as JSON. ``signatures``: all of them, by time over all ranks, longest first. ``ranks``: ranks that
    launched the same, with the launches of each signature in that order.
    """
    launches: Counter[int] = Counter()
    slowed_ns: Counter[int] = Counter()
    # Ranks that share a timeline share one table of counts: each is added up once, times its ranks.
    for counts, ranks in together(rank.counts for rank in window.ranks):
        for key, counted in counts.items():
            launches[key] += counted.launches * ranks
            slowed_ns[key] += counted.slowed_ns * ranks
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
        "window": window.window,
        "gpu_ns": gpu_ns,
        "slowed_ns": slowed_ns.total(),
        "signatures": signatures,
        "ranks": _groups(window.ranks, [key for key, _, _ in priced]),
    }


def _groups(ranks: Sequence[RankCounts[int]], order: Sequence[int]) -> list[Document]:
    """The launches by groups of ranks with equal counts: those of a data-parallel group usually have them."""
    alike: dict[tuple[int, ...], list[int]] = {}
    known: dict[int, list[int]] = {}
    for rank in ranks:
        if id(rank.counts) not in known:
            launches = tuple(rank.counts.get(key, NONE).launches for key in order)
            known[id(rank.counts)] = alike.setdefault(launches, [])
        known[id(rank.counts)].append(rank.rank)
    return [{"ranks": members, "launches": list(launches)} for launches, members in alike.items()]


def gpu_use_document(
    ranks: Sequence[RankSnapshot], infos: Sequence[RankInfo], user_of_gpu: Callable[[int], int | None]
) -> Document:
    """The ranks that used no GPU in the whole run: no work, no memory. ``causes``: the causes that they report, or that
    another rank's process had the GPU, as `user_of_gpu` knows.
    """
    unused = [
        rank.rank
        for rank, info in zip(ranks, infos, strict=True)
        if not (rank.counters.launches or info.launches.total or any(rank.shares))
        and not (any(rank.memory) or any(info.told_memory) or any(info.memory_at_end))
    ]
    causes: dict[str, list[int]] = {}
    for rank in unused:
        user = user_of_gpu(rank)
        of_another = () if user is None else (f"a process of rank {user} used the GPU of this number",)
        for cause in (*infos[rank].unused_gpu, *of_another):
            causes.setdefault(cause, []).append(rank)
    return {"unused_ranks": unused, "causes": [{"text": text, "ranks": members} for text, members in causes.items()]}


def source_shares(totals: Sequence[Counts], costs: Costs) -> Document:
    """The shares of the GPU time of these launches, by the source of their cost, and that time."""
    by_source = dict.fromkeys(Source, 0)
    for counts, ranks in together(totals):
        for key, (launches, slowed_ns) in counts.items():
            cost = costs.priced(key).cost
            by_source[cost.source] += (cost.solo_ns * launches + slowed_ns) * ranks
    total_ns = sum(by_source.values())
    shown = [source for source in Source if source is not Source.UNRECOGNISED or by_source[source]]
    shares = {source.name.lower(): by_source[source] / total_ns if total_ns else 0.0 for source in shown}
    return shares | {"gpu_ns": total_ns}
