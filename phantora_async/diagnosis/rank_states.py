"""Who waits for whom, in words: for the status line, and for the message of a run that cannot go on."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from emu.contract import records
from phantora_async.coordinator.communicators import named
from phantora_async.coordinator.fact_builder import FactBuilder
from phantora_async.failures import Side
from phantora_async.liveness.call_sites import Site, short, texts
from phantora_async.virtual_time import (
    Collective,
    CollectiveSnapshot,
    HostState,
    RankSnapshot,
    Snapshot,
    StreamSnapshot,
    StreamState,
    WaitSnapshot,
)

SHOWN = 16
"""Groups of ranks that a message lists."""
QUESTIONS = {
    records.CLOCK_READ: "for the time",
    records.ELAPSED: "for the time between two events",
    records.QUERY: "to know whether work is done",
}
Called = Collective | CollectiveSnapshot


@dataclass(frozen=True, slots=True)
class RankState:
    rank: int
    clock_ns: int
    doing: str
    """``running``, ``finished``, or what it waits for and where that was called."""
    waiting: bool
    steps: int
    site: Site | None
    """Where the wait was called, or else the last call that told its place."""


def states(snapshot: Snapshot, fact_builder: FactBuilder, asleep: Container[int] = ()) -> list[RankState]:
    """One for every rank that the snapshot shows. ``asleep``: those that are known to sleep."""
    unanswered = fact_builder.communicators.unanswered()
    found = []
    for rank in snapshot.ranks:
        doing, waiting, site = _doing(rank, fact_builder, rank.rank in asleep)
        if not waiting and rank.rank in unanswered:
            doing += _unanswered(unanswered[rank.rank], rank.rank, fact_builder)
        found.append(RankState(rank.rank, rank.clock_ns, doing, waiting, rank.steps, site))
    return found


def describe_all(found: Sequence[RankState], run_dir: Path, now: Mapping[int, Site], stacks: Mapping[int, Path]) -> str:
    """Lines like ``  ranks 1-7: wait for ...; logs ...``, ranks in the same state together.

    ``now``: where ranks were seen to be, shown for those that do not wait in a call; ``stacks``: files that tell all.
    """
    groups: dict[str, list[int]] = {}
    for state in found:
        doing = state.doing
        if not state.waiting and state.rank in now:
            doing += f", now at {now[state.rank]}"
        groups.setdefault(doing, []).append(state.rank)
    lines = [
        f"  {named(ranks)}: {doing}; {_files(run_dir, ranks, stacks)}"
        for doing, ranks in sorted(groups.items(), key=lambda group: group[1])
    ]
    if len(lines) > SHOWN:
        lines = [*lines[:SHOWN], f"  ... and {len(lines) - SHOWN} groups of ranks more"]
    return "\n".join(lines)


def describe_sides(sides: Sequence[Side], fact_builder: FactBuilder, run_dir: Path) -> str:
    """Lines like ``  ranks 0-6: all_reduce #3 ..., called at train.py:42 in step; logs ...``."""
    lines = []
    for side in sides:
        groups: dict[str, list[int]] = {}
        for rank, site in zip(side.ranks, side.sites, strict=True):
            groups.setdefault(_called_at(fact_builder.site(rank, site)), []).append(rank)
        lines += [f"  {named(ranks)}: {side.call}{at}; {_files(run_dir, ranks, {})}" for at, ranks in groups.items()]
    return "\n".join(lines)


def sides_document(sides: Sequence[Side], fact_builder: FactBuilder) -> list[dict[str, Any]]:
    """The same for programs: one entry a rank."""
    found = []
    for side in sides:
        for rank, number in zip(side.ranks, side.sites, strict=True):
            site = fact_builder.site(rank, number)
            found.append({"rank": rank, "call": side.call, "site": site.document() if site else None})
    return found


def _files(run_dir: Path, ranks: list[int], stacks: Mapping[int, Path]) -> str:
    if len(ranks) == 1:
        log = f"log {short(run_dir / f'rank{ranks[0]}.log')}"
        return f"{log}, {stacks[ranks[0]].name}" if ranks[0] in stacks else log
    some = "{log,stack}" if any(rank in stacks for rank in ranks) else "log"
    return f"logs {short(run_dir)}/rank{{{named(ranks).split()[1]}}}.{some}"


def _called_at(*sites: Site | None) -> str:
    found = texts(sites)
    return f", called at {found}" if found else ""


# ---- what a rank does ----------------------------------------------------------------------------------------------


def _doing(rank: RankSnapshot, fact_builder: FactBuilder, asleep: bool) -> tuple[str, bool, Site | None]:
    rank_info = fact_builder.rank_info[rank.rank]
    if rank_info.hello is None and rank_info.bye is None:
        return "not started yet", False, None
    if rank.state == HostState.FINISHED or (rank_info.bye is not None and rank.state == HostState.RUNNING):
        return _finished(rank.rank, fact_builder), False, None
    if rank.wait is not None:
        site = fact_builder.site(rank.rank, rank.wait.site)
        return _waits(rank, rank.wait, site, fact_builder), True, site
    if rank_info.questions:
        site = fact_builder.site(rank.rank, rank_info.last_question.site)
        what = QUESTIONS.get(rank_info.last_question.kind, "for its answer")
        return f"waits{f' at {site}' if site else ''} {what} until slower ranks have caught up", True, site
    asleep = asleep or rank.state == HostState.PASSED_OVER
    what = "asleep in a lock, a socket or a child" if asleep else "running"
    return what, False, fact_builder.site(rank.rank, rank.last_site)


def _finished(rank: int, fact_builder: FactBuilder) -> str:
    bye = fact_builder.rank_info[rank].bye
    words = bye.payload.rstrip(b"\0").decode(errors="replace") if bye is not None else ""
    return f"finished: {words}" if words else "finished"


def _waits(rank: RankSnapshot, wait: WaitSnapshot, site: Site | None, fact_builder: FactBuilder) -> str:
    at = f" at {site}" if site else ""
    if wait.creation is not None:
        arrived = wait.creation.arrived
        return f"waits{at} for {wait.creation.label}, to which {named(arrived)} {_have(arrived)} come"
    streams = "; ".join(_stream(stream, rank.rank, fact_builder) for stream in wait.streams)
    if rank.state == HostState.WAITS_EVENT:
        return f"waits{at} for an event on {streams}"
    if rank.state == HostState.WAITS_QUEUE:
        return f"its launch queue is full{at}: {streams}"
    return f"waits{at} for its GPU: {streams}" if rank.state == HostState.WAITS_DEVICE else f"waits{at} for {streams}"


def _stream(stream: StreamSnapshot, rank: int, fact_builder: FactBuilder) -> str:
    """``stream 7, which is in all_reduce #3 ...``"""
    text = f"stream {stream.id}"
    if stream.cause_id != stream.id:
        text += f" behind stream {stream.cause_id}"
    if stream.cause_state == StreamState.COLLECTIVE:
        return f"{text}, which is in {_collectives(stream.collectives, rank, fact_builder)}"
    return f"{text}, which computes" if stream.cause_state == StreamState.RUNNING else text


def _collectives(collectives: Sequence[CollectiveSnapshot], rank: int, fact_builder: FactBuilder) -> str:
    """``all_reduce #3 ..., called at a.py:4``, and who is missing."""
    return " and ".join(
        f"{collective.description}{_called_at(*_sites(collective, {rank}, fact_builder))}"
        f"{_absent(collective, collective.missing, fact_builder)}"
        for collective in collectives
    )


def _unanswered(collective: Collective, rank: int, fact_builder: FactBuilder) -> str:
    """``, has called all_reduce #3 at a.py:4; rank 2 has not called it``: what it may wait for where none can see."""
    joined = set(collective.joined)
    missing = [other for other in collective.ranks if other not in joined]
    at = texts(_sites(collective, {rank}, fact_builder))
    return (
        f", has called {collective.describe()}{f' at {at}' if at else ''}{_absent(collective, missing, fact_builder)}"
    )


def _absent(collective: Called, missing: Sequence[int], fact_builder: FactBuilder) -> str:
    """``; rank 2 has not called it; rank 3 has called it at a.py:4, but not reached it``"""
    joined = set(collective.joined)
    never = [rank for rank in missing if rank not in joined]
    behind = joined.intersection(missing)
    text = f"; {named(never)} {_have(never)} not called it" if never else ""
    if behind:
        at = texts(_sites(collective, behind, fact_builder))
        text += f"; {named(behind)} {_have(behind)} called it{f' at {at}' if at else ''}, but not reached it"
    return text


def _sites(collective: Called, ranks: Container[int], fact_builder: FactBuilder) -> list[Site | None]:
    called = zip(collective.joined, collective.sites, strict=True)
    return [fact_builder.site(rank, site) for rank, site in called if rank in ranks]


def _have(ranks: Iterable[int]) -> str:
    return "has" if len(set(ranks)) == 1 else "have"
