"""Who waits for whom, in words: for the status line, and for the message of a run that cannot go on."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from emu.contract import records
from phantora_async.ingest.fact_builder import FactBuilder
from phantora_async.errors import Side
from phantora_async.ingest.call_sites import Site, texts
from phantora_async.virtual_time import CommCreation, Timeline
from phantora_async.virtual_time.entities import (
    Device,
    EventRecording,
    Host,
    HostState,
    NcclKernel,
    Stream,
    StreamState,
)
from phantora_async.virtual_time.facts import Collective
from phantora_async.wording import named, short

SHOWN = 16
"""Groups of ranks that a message lists."""
QUESTIONS = {
    records.CLOCK_READ: "for the time",
    records.ELAPSED: "for the time between two events",
    records.QUERY: "to know whether work is done",
}
DEPTH = 8
"""Streams that wait for streams are followed no further."""


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


def states(timeline: Timeline, fact_builder: FactBuilder, asleep: Container[int] = ()) -> list[RankState]:
    """One for every rank. ``asleep``: those of whom it is known beside what the timeline knows."""
    unanswered = fact_builder.incomplete_collectives()
    found = []
    for host in timeline.hosts:
        doing, waiting, site = _doing(host, timeline, fact_builder, host.rank in asleep)
        if not waiting and host.rank in unanswered:
            doing += _unanswered(unanswered[host.rank], host.rank, fact_builder)
        found.append(RankState(host.rank, host.clock_ns, doing, waiting, host.steps, site))
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


def _doing(host: Host, timeline: Timeline, fact_builder: FactBuilder, asleep: bool) -> tuple[str, bool, Site | None]:
    rank_info = fact_builder.rank_info[host.rank]
    if rank_info.hello is None and rank_info.bye is None:
        return "not started yet", False, None
    if host.state == HostState.FINISHED or (rank_info.bye is not None and host.state == HostState.RUNNING):
        return _finished(host, fact_builder), False, None
    if host.state == HostState.RUNNING or host.state == HostState.PASSED_OVER:
        if rank_info.questions:
            site = fact_builder.site(host.rank, rank_info.last_question.site)
            what = QUESTIONS.get(rank_info.last_question.kind, "for its answer")
            return f"waits{f' at {site}' if site else ''} {what} until slower ranks have caught up", True, site
        site = last_site(host, fact_builder)
        asleep = asleep or host.state == HostState.PASSED_OVER
        what = "asleep in a lock, a socket or a child" if asleep else "running"
        return what, False, site
    site = _wait_site(host, fact_builder)
    at = f" at {site}" if site else ""
    target = host.waits_for
    if isinstance(target, CommCreation):
        came = timeline.waiting_in_creation(target)
        return f"waits{at} for {target.label}, to which {named(came)} {_have(came)} come", True, site
    if isinstance(target, EventRecording):
        return f"waits{at} for an event on {_stream(target.stream, timeline, fact_builder)}", True, site
    if isinstance(target, Stream):
        full = f"its launch queue is full{at}: " if host.state == HostState.WAITS_QUEUE else f"waits{at} for "
        return f"{full}{_stream(target, timeline, fact_builder)}", True, site
    assert isinstance(target, Device)
    busy = [s for s in host.streams.values() if s.device is target and s.state != StreamState.IDLE]
    causes = dict.fromkeys(_cause(stream) for stream in busy)
    streams = "; ".join(_stream(stream, timeline, fact_builder) for stream in causes)
    return f"waits{at} for its GPU: {streams}", True, site


def _unanswered(collective: Collective, rank: int, fact_builder: FactBuilder) -> str:
    """``, has called all_reduce #3 at a.py:4; rank 2 has not called it``: what it may wait for where none can see."""
    joined = set(collective.joined)
    missing = [other for other in collective.ranks if other not in joined]
    at = texts(_sites(collective, {rank}, fact_builder))
    return (
        f", has called {collective.describe()}{f' at {at}' if at else ''}{_absent(collective, missing, fact_builder)}"
    )


def _finished(host: Host, fact_builder: FactBuilder) -> str:
    words = fact_builder.rank_info[host.rank].last_words
    return f"finished: {words}" if words else "finished"


def _wait_site(host: Host, fact_builder: FactBuilder) -> Site | None:
    """Where the wait was called that the host is in. A launch that found its queue full is still to be done."""
    place = host.cursor if host.state == HostState.WAITS_QUEUE else host.cursor - 1
    return fact_builder.site(host.rank, host.log[place][1]) if 0 <= place < len(host.log) else None


def last_site(host: Host, fact_builder: FactBuilder) -> Site | None:
    """Of the last call that told where it was made, as far as the rank's log is kept."""
    return next((fact_builder.site(host.rank, fact[1]) for fact in reversed(host.log) if fact[1]), None)


def _cause(stream: Stream) -> Stream:
    """The stream that a blocked one waits for in the end, or itself."""
    for _ in range(DEPTH):
        if stream.state != StreamState.BLOCKED:
            break
        stream = stream.items[stream.head][1].stream
    return stream


def _stream(stream: Stream, timeline: Timeline, fact_builder: FactBuilder) -> str:
    """``stream 7, which is in all_reduce #3 ...``"""
    cause = _cause(stream)
    text = f"stream {stream.id}" if cause is stream else f"stream {stream.id} behind stream {cause.id}"
    if cause.state == StreamState.COLLECTIVE:
        return f"{text}, which is in {_launch(cause.items[cause.head][1], timeline, fact_builder)}"
    return f"{text}, which computes" if cause.state == StreamState.RUNNING else text


def _launch(launch: NcclKernel, timeline: Timeline, fact_builder: FactBuilder) -> str:
    own = launch.stream.device.host.rank
    for collective in launch.collectives:
        transfer = timeline.collectives.under_way.get(collective)
        if transfer is not None and transfer.begun_ns < 0:
            came = {other.stream.device.host.rank for other in transfer.launches}
            missing = [rank for rank in collective.ranks if rank not in came] or list(collective.ranks)
            return f"{_collective(collective, own, fact_builder)}{_absent(collective, missing, fact_builder)}"
    return " and ".join(_collective(collective, own, fact_builder) for collective in launch.collectives[:2])


def _collective(collective: Collective, rank: int, fact_builder: FactBuilder) -> str:
    return f"{collective.describe()}{_called_at(*_sites(collective, {rank}, fact_builder))}"


def _absent(collective: Collective, missing: Sequence[int], fact_builder: FactBuilder) -> str:
    """``; rank 2 has not called it; rank 3 has called it at a.py:4, but not reached it``"""
    joined = set(collective.joined)
    never = [rank for rank in missing if rank not in joined]
    behind = joined.intersection(missing)
    text = f"; {named(never)} {_have(never)} not called it" if never else ""
    if behind:
        at = texts(_sites(collective, behind, fact_builder))
        text += f"; {named(behind)} {_have(behind)} called it{f' at {at}' if at else ''}, but not reached it"
    return text


def _sites(collective: Collective, ranks: Container[int], fact_builder: FactBuilder) -> list[Site | None]:
    called = zip(collective.joined, collective.sites, strict=True)
    return [fact_builder.site(rank, site) for rank, site in called if rank in ranks]


def _have(ranks: Iterable[int]) -> str:
    return "has" if len(set(ranks)) == 1 else "have"
