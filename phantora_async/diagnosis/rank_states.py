"""Describes in words what each rank is doing and what it waits for: for the status line and the message of a failed
run.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from emu.contract import records
from phantora_async.errors import Side
from phantora_async.ingest.call_sites import Site, texts
from phantora_async.ingest.differing_lines import DifferingCalls
from phantora_async.ingest.fact_builder import FactBuilder
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
from phantora_async.wording import named, short

MOST_GROUPS = 16
"""The most groups of ranks that a message lists."""
MOST_THREADS = 4
"""The most threads of a rank that a message lists."""
STOPPED = "stopped by a signal (SIGSTOP)"
Called = Collective | CollectiveSnapshot


@dataclass(frozen=True, slots=True)
class RankState:
    rank: int
    clock_ns: int
    doing: str
    """``running``, ``finished``, or the thing that it waits for and where it called that."""
    waiting: bool
    steps: int
    site: Site | None
    """The call site of the call in which it waits, else its last known call site."""
    alone: bool = False
    """True if it runs, and has called a collective that others have not."""
    failed: bool = False
    """True if it has ended with an exception."""


def states(
    snapshot: Snapshot, fact_builder: FactBuilder, asleep: Container[int] = (), stopped: Container[int] = ()
) -> list[RankState]:
    """A state for each rank that the snapshot shows. ``asleep``: ranks that are known to sleep; ``stopped``: ranks that
    a signal has stopped.
    """
    incomplete = fact_builder.incomplete_collectives()
    found: list[RankState] = []
    # Ranks that share a timeline share what they have told, too, and so need only one look.
    known: dict[int, RankState] = {}
    for rank in snapshot.ranks:
        info = fact_builder.rank_info[rank.rank]
        shared = id(info)
        state = known.get(shared)
        if state is not None:
            found.append(replace(state, rank=rank.rank))
            continue
        activity = _activity(rank, fact_builder, rank.rank in asleep)
        doing = activity.doing
        if rank.rank in stopped:
            doing = f"{STOPPED}; before that it {doing}" if activity.waiting else STOPPED
        alone = not activity.waiting and rank.rank in incomplete
        if alone:
            doing += _incomplete(incomplete[rank.rank], rank.rank, fact_builder)
        state = known[shared] = RankState(
            rank.rank, rank.clock_ns, doing, activity.waiting, rank.steps, activity.site, alone, bool(info.last_words)
        )
        found.append(state)
    return found


def describe_all(
    found: Sequence[RankState],
    run_dir: Path,
    seen_at: Mapping[int, Site],
    stacks: Mapping[int, Path],
    beside: Mapping[int, Sequence[Site]],
) -> str:
    """Lines like ``  ranks 1-7: wait for ...; logs ...``, one for all ranks in the same state.

    ``seen_at``: where ranks are now, shown for those that do not wait in a call; ``stacks``: files with their stacks;
    ``beside``: where other threads of the script are.
    """
    groups: dict[str, list[int]] = {}
    for state in found:
        doing = state.doing
        if not state.waiting and state.rank in seen_at:
            doing += f", now at {seen_at[state.rank]}"
        others = beside.get(state.rank, ())
        if others:
            some = texts(others[:MOST_THREADS]) + (", ..." if len(others) > MOST_THREADS else "")
            doing += f", {'another thread' if len(others) == 1 else 'other threads'} at {some}"
        groups.setdefault(doing, []).append(state.rank)
    lines = [
        f"  {named(ranks)}: {doing}; {_files(run_dir, ranks, stacks)}"
        for doing, ranks in sorted(groups.items(), key=lambda group: group[1])
    ]
    if len(lines) > MOST_GROUPS:
        lines = [*lines[:MOST_GROUPS], f"  ... and {len(lines) - MOST_GROUPS} more groups of ranks"]
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


def describe_differing_lines(found: Sequence[DifferingCalls], fact_builder: FactBuilder) -> str:
    """Says since which call the members of communicators were at different lines, and at which."""
    text = []
    for calls in found[:MOST_GROUPS]:
        side = calls.first
        since = (
            f"from {side.call} to {calls.last} these ranks had" if calls.last else f"since {side.call} these ranks have"
        )
        text.append(
            f"{since} paired calls of different lines; if the lines do not belong together, a rank has skipped or "
            "added a call there:"
        )
        groups: dict[str, list[int]] = {}
        for rank, site in sorted(zip(side.ranks, side.sites, strict=True)):
            groups.setdefault(texts([fact_builder.site(rank, site)]), []).append(rank)
        text += [f"  {named(ranks)}: called at {at}" for at, ranks in groups.items()]
    return "\n".join(text)


def sides_document(sides: Sequence[Side], fact_builder: FactBuilder) -> list[dict[str, Any]]:
    """The sides of a mismatch for the JSON report: one entry for each rank."""
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


# ---- what a rank is doing ------------------------------------------------------------------------------------------


class _Activity(NamedTuple):
    """The fields of RankState with these names."""

    doing: str
    waiting: bool
    site: Site | None


def _activity(rank: RankSnapshot, fact_builder: FactBuilder, asleep: bool) -> _Activity:
    rank_info = fact_builder.rank_info[rank.rank]
    if rank_info.hello is None and rank_info.bye is None:
        return _Activity("not started yet", False, None)
    if rank.state == HostState.FINISHED or (rank_info.bye is not None and rank.state == HostState.RUNNING):
        return _Activity(f"finished{': ' + rank_info.last_words if rank_info.last_words else ''}", False, None)
    if rank.state == HostState.HELD:
        return _Activity("held: it has done the steps of --steps, or exceeds a limit of memory", False, None)
    if rank.wait is not None:
        site = fact_builder.site(rank.rank, rank.wait.site)
        return _Activity(_waits(rank, rank.wait, site, fact_builder), True, site)
    if rank_info.questions:
        site = fact_builder.site(rank.rank, rank_info.last_question.site)
        words = records.WORDS.get(rank_info.last_question.kind, ())
        what = words[1] if len(words) > 1 else "for an answer"
        return _Activity(
            f"waits{f' at {site.called}' if site else ''} {what}, which depends on slower ranks", True, site
        )
    asleep = asleep or rank.state == HostState.PASSED_OVER
    what = "asleep in a lock, a socket or a child process" if asleep else "running"
    return _Activity(what, False, fact_builder.site(rank.rank, rank.last_site))


def _waits(rank: RankSnapshot, wait: WaitSnapshot, site: Site | None, fact_builder: FactBuilder) -> str:
    at = f" at {site.called}" if site else ""
    if wait.creation is not None:
        arrived, missing = wait.creation.arrived, wait.creation.missing
        text = f"waits{at} for {wait.creation.label}, which {named(arrived)} {_have(arrived)} joined"
        return f"{text}; {named(missing)} {_have(missing)} not" if missing else text
    streams = "; ".join(_stream(stream, rank.rank, fact_builder) for stream in wait.streams)
    if rank.state == HostState.WAITS_EVENT:
        return f"waits{at} for an event on {streams}"
    if rank.state == HostState.WAITS_QUEUE:
        return f"waits{at} for room in its launch queue: {streams}"
    return f"waits{at} for its GPU: {streams}" if rank.state == HostState.WAITS_DEVICE else f"waits{at} for {streams}"


def _stream(stream: StreamSnapshot, rank: int, fact_builder: FactBuilder) -> str:
    """Describes a stream: ``stream 7, which is in all_reduce #3 ...``."""
    text = f"stream {stream.id}"
    if stream.cause_id != stream.id:
        text += f" behind stream {stream.cause_id}"
    if stream.cause_state == StreamState.COLLECTIVE:
        return f"{text}, which is in {_collectives(stream.collectives, rank, fact_builder)}"
    return f"{text}, which computes" if stream.cause_state == StreamState.RUNNING else text


def _collectives(collectives: Sequence[CollectiveSnapshot], rank: int, fact_builder: FactBuilder) -> str:
    """Describes collectives: ``all_reduce #3 ..., called at a.py:4``, and who is missing."""
    return " and ".join(
        f"{collective.description}{_called_at(*_sites(collective, {rank}, fact_builder))}"
        f"{_absent(collective, collective.missing, fact_builder)}"
        for collective in collectives
    )


def _incomplete(collective: Collective, rank: int, fact_builder: FactBuilder) -> str:
    """Names a collective that the rank has called and others have not, for whose result it may wait unseen: ``, has
    called all_reduce #3 at a.py:4; rank 2 has not called it``.
    """
    joined = set(collective.joined)
    missing = [other for other in collective.callers if other not in joined]
    at = texts(_sites(collective, {rank}, fact_builder))
    return (
        f", has called {collective.describe()}{f' at {at}' if at else ''}{_absent(collective, missing, fact_builder)}"
    )


def _absent(collective: Called, missing: Sequence[int], fact_builder: FactBuilder) -> str:
    """Names the missing ranks: ``; rank 2 has not called it; rank 3 has called it at a.py:4, but its stream has not
    reached it``.
    """
    joined = set(collective.joined)
    never = [rank for rank in missing if rank not in joined]
    behind = joined.intersection(missing)
    text = f"; {named(never)} {_have(never)} not called it" if never else ""
    if behind:
        at = texts(_sites(collective, behind, fact_builder))
        streams = "its stream has" if len(behind) == 1 else "their streams have"
        text += f"; {named(behind)} {_have(behind)} called it{f' at {at}' if at else ''}, but {streams} not reached it"
    return text


def _sites(collective: Called, ranks: Container[int], fact_builder: FactBuilder) -> list[Site | None]:
    called = zip(collective.joined, collective.sites, strict=True)
    return [fact_builder.site(rank, site) for rank, site in called if rank in ranks]


def _have(ranks: Iterable[int]) -> str:
    return "has" if len(set(ranks)) == 1 else "have"
