"""Who waits for whom, in words: for the status line, and for the message of a run that cannot go on."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from phantora_async.communicators import named
from phantora_async.intake import Intake
from phantora_async.virtual_time import Gathering, Timeline
from phantora_async.virtual_time.entities import Device, Host, HostState, Launch, Mark, Stream, StreamState

SHOWN = 16
"""Groups of ranks that a message lists."""
DEPTH = 8
"""Streams that wait for streams are followed no further."""


@dataclass(frozen=True, slots=True)
class RankState:
    rank: int
    clock_ns: int
    doing: str
    """``running``, ``finished``, or what it waits for."""
    waiting: bool
    steps: int


def states(timeline: Timeline, intake: Intake) -> list[RankState]:
    """One for every rank."""
    result = []
    for host in timeline.hosts:
        doing, waiting = _doing(host, timeline, intake)
        result.append(RankState(host.rank, host.clock_ns, doing, waiting, host.steps))
    return result


def describe_all(timeline: Timeline, intake: Intake, run_dir: Path) -> str:
    """Lines like ``  ranks 1-7 wait for ... (logs ...)``, ranks in the same state together."""
    groups: dict[str, list[int]] = {}
    for state in states(timeline, intake):
        groups.setdefault(state.doing, []).append(state.rank)
    lines = [f"  {named(ranks)}: {doing}; {_logs(run_dir, ranks)}" for doing, ranks in groups.items()]
    if len(lines) > SHOWN:
        lines = [*lines[:SHOWN], f"  ... and {len(lines) - SHOWN} groups of ranks more"]
    return "\n".join(lines)


def _logs(run_dir: Path, ranks: list[int]) -> str:
    if len(ranks) <= 3:
        return "log " + ", ".join(str(run_dir / f"rank{rank}.log") for rank in ranks)
    return f"logs {run_dir}/rank{{{named(ranks).split()[1]}}}.log"


def _doing(host: Host, timeline: Timeline, intake: Intake) -> tuple[str, bool]:
    said = intake.said[host.rank]
    if host.state == HostState.FINISHED or (said.bye is not None and host.state == HostState.RUNNING):
        return "finished", False
    if said.hello is None:
        return "not started yet", False
    if host.state == HostState.RUNNING or host.state == HostState.PASSED_OVER:
        if said.questions:
            return "waits for an answer that depends on other ranks", True
        return ("running" if host.state == HostState.RUNNING else "asleep outside the emulation"), False
    target = host.waits_for
    if isinstance(target, Gathering):
        came = timeline.gathered(target)
        return f"waits for {target.label}, to which {named(came)} {_have(came)} come", True
    if isinstance(target, Mark):
        return f"waits for an event on {_stream(target.stream, timeline)}", True
    if isinstance(target, Stream):
        full = "its launch queue is full: " if host.state == HostState.WAITS_QUEUE else "waits for "
        return f"{full}{_stream(target, timeline)}", True
    assert isinstance(target, Device)
    busy = [s for s in host.streams.values() if s.device is target and s.state != StreamState.IDLE]
    causes = dict.fromkeys(_cause(stream) for stream in busy)
    return f"waits for its GPU: {'; '.join(_stream(stream, timeline) for stream in causes)}", True


def _cause(stream: Stream) -> Stream:
    """The stream that a blocked one waits for in the end, or itself."""
    for _ in range(DEPTH):
        if stream.state != StreamState.BLOCKED:
            break
        stream = stream.items[stream.head][1].stream
    return stream


def _stream(stream: Stream, timeline: Timeline) -> str:
    """``stream 7, which is in all_reduce #3 ...``"""
    cause = _cause(stream)
    text = f"stream {stream.id}" if cause is stream else f"stream {stream.id} behind stream {cause.id}"
    if cause.state == StreamState.COLLECTIVE:
        return f"{text}, which is in {_launch(cause.items[cause.head][1], timeline)}"
    return f"{text}, which computes" if cause.state == StreamState.RUNNING else text


def _launch(launch: Launch, timeline: Timeline) -> str:
    for meeting in launch.meetings:
        transfer = timeline.collectives.under_way.get(meeting)
        if transfer is not None and transfer.begun_ns < 0:
            came = {other.stream.device.host.rank for other in transfer.launches}
            missing = [rank for rank in meeting.ranks if rank not in came] or list(meeting.ranks)
            never = [rank for rank in missing if rank not in meeting.joined]
            detail = f"; {named(never)} {_have(never)} not even called it" if never else ""
            return f"{meeting.describe()}, which {named(missing)} {_have(missing)} not reached{detail}"
    return " and ".join(meeting.describe() for meeting in launch.meetings[:2])


def _have(ranks: Iterable[int]) -> str:
    return "has" if len(set(ranks)) == 1 else "have"
