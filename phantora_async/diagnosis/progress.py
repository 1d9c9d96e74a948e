"""The status line of a run: virtual time, what ranks are doing, how many steps are done."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

from phantora_async.diagnosis.rank_states import RankState, states
from phantora_async.ingest.fact_builder import FactBuilder, RankInfo
from phantora_async.virtual_time import Snapshot
from phantora_async.wording import named


@dataclass(frozen=True, slots=True)
class Progress:
    virtual_ns: int
    ahead_ns: int
    """The instant to which the furthest rank has been simulated, assuming that slower ranks send nothing that matters
    to it.
    """
    running: int
    """The number of ranks that run in real time."""
    waiting: int
    """The number of ranks that wait for an answer."""
    finished: int
    starting: int
    steps: int
    """The number of steps that every rank has done."""
    behind: RankState | None
    """A waiting rank, as an example of what ranks wait for."""

    @classmethod
    def of(cls, snapshot: Snapshot, fact_builder: FactBuilder) -> Self:
        """The current progress. `snapshot` shows at least the ranks that ``examples`` names."""
        counts = Counter(map(_doing, fact_builder.rank_info))
        shown = examples(fact_builder)
        behind = next((state for state in states(snapshot, fact_builder) if state.rank in shown), None)
        return cls(
            virtual_ns=snapshot.now_ns,
            ahead_ns=snapshot.ahead_ns,
            running=counts["running"],
            waiting=counts["waiting"],
            finished=counts["finished"],
            starting=counts["starting"],
            steps=snapshot.steps,
            behind=behind,
        )


def _doing(rank_info: RankInfo) -> str:
    """The count that the rank belongs to. A rank that has ended may have left questions: its watchdog's."""
    if rank_info.bye is not None:
        return "finished"
    if rank_info.hello is None:
        return "starting"
    return "waiting" if rank_info.questions else "running"


def examples(fact_builder: FactBuilder) -> list[int]:
    """The first rank that waits, if every rank waits for an answer or has ended. The status line says what it waits
    for.
    """
    ranks = fact_builder.rank_info
    if not all(rank_info.questions or rank_info.bye is not None for rank_info in ranks):
        return []
    return [rank for rank, rank_info in enumerate(ranks) if rank_info.questions][:1]


def phase(progress: Progress, compiling: Sequence[int] = (), whole: Mapping[str, Any] | None = None) -> str:
    """Names the phase of the run: ``starting ranks (3 of 8)``, ``step 5 of 10, about 12 s left``. `compiling`: the
    ranks that compile; `whole`: how much there is to do, as ``Remaining`` reports it.
    """
    ranks = progress.starting + progress.running + progress.waiting + progress.finished
    if progress.starting == ranks:
        return "importing PyTorch and what the script imports"
    if progress.finished == ranks:
        return "ending"
    if progress.starting:
        return f"starting ranks ({ranks - progress.starting} of {ranks})"
    found = f"step {progress.steps + 1}" if progress.steps else "building, before the first step"
    if whole is not None and whole["source"] == "--until":
        found += f", {whole['share']:.0%} of --until"
    elif whole is not None and (progress.steps or whole["done"]):
        found = f"step {min(whole['done'] + 1, whole['whole'])} of {whole['whole']}"
    if compiling:
        found += f", compiling on {named(compiling)}"
    elif whole is not None and whole["remaining_s"] is not None:
        found += f", about {clock(whole['remaining_s'])} left"
    return found


def clock(for_s: float) -> str:
    """A real duration: ``12 s``, ``2:05``, ``1:02:05``."""
    whole = round(for_s)
    if whole < 60:
        return f"{whole} s"
    hours, minutes = divmod(whole // 60, 60)
    return f"{hours}:{minutes:02}:{whole % 60:02}" if hours else f"{minutes}:{whole % 60:02}"


def line(progress: Progress, stall: str = "") -> str:
    """``virtual 12.345 s (some at 12.401 s) | 250 running, 6 waiting | 4 steps``; `stall` says whom ranks wait for."""
    counts = [
        f"{count} {word}"
        for count, word in (
            (progress.starting, "starting"),
            (progress.running, "running"),
            (progress.waiting, "waiting"),
            (progress.finished, "finished"),
        )
        if count
    ]
    virtual = f"virtual {progress.virtual_ns / 1e9:.3f} s"
    if progress.ahead_ns > progress.virtual_ns:
        virtual += f" (some at {progress.ahead_ns / 1e9:.3f} s)"
    parts = [virtual, ", ".join(counts)]
    if progress.steps:
        parts.append(f"{progress.steps} step{'s' if progress.steps > 1 else ''}")
    if stall:
        parts.append(stall)
    elif progress.behind is not None:
        parts.append(f"rank {progress.behind.rank} {progress.behind.doing}")
    return " | ".join(parts)
