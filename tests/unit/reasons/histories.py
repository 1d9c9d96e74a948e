"""Hand-made histories: scripts of ranks, executed in a timeline that records what waited for what."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from emu.contract import records
from phantora_async.reasons.critical_path import Piece, walk
from phantora_async.reasons.recording import Recorder
from phantora_async.reasons.waits import waits
from phantora_async.virtual_time import Collective, Stop, Timeline

from ..virtual_time.scripted import FixedNetwork, Script, new_fact_builder


def facts_of(scripts: Sequence[Script]) -> list[list[Any]]:
    """Returns the facts by rank. All ranks join communicators before any goes on."""
    fact_builder = new_fact_builder(len(scripts))
    left = [records.decode_up(b"".join(script.records))[0] for script in scripts]
    facts: list[list[Any]] = [[] for _ in scripts]
    while any(left):
        for rank, mine in enumerate(left):
            joins = [place for place, record in enumerate(mine) if record.kind == records.COMM_INIT]
            portion = joins[0] + 1 if joins else len(mine)
            facts[rank] += fact_builder.take(rank, mine[:portion])
            del mine[:portion]
    return facts


def nbytes(collective: Collective) -> int:
    return collective.nbytes


def recorded(facts: Sequence[Sequence[Any]], duration_ns: Callable[[Collective], int] = nbytes) -> Recorder:
    timeline, recorder = Timeline(len(facts), FixedNetwork(duration_ns), 1024), Recorder(len(facts))
    timeline.listen(recorder, range(len(facts)))
    for rank, mine in enumerate(facts):
        timeline.feed(rank, mine)
    while timeline.run(1000) is Stop.BUDGET:
        continue
    return recorder


def path_of(scripts: Sequence[Script], first: int = 0, last: int = 1) -> list[Piece]:
    """Returns the critical path of rank 0 between two ends of steps."""
    recorder = recorded(facts_of(scripts))
    from_ns, end = recorder.steps[0, first].at_ns, recorder.steps[0, last]
    return walk(recorder, end, from_ns, waits(recorder, from_ns, end.at_ns))


def told(pieces: Sequence[Piece]) -> list[tuple[Any, ...]]:
    """Returns (rank, what, duration, who waits) of each piece."""
    return [(piece.rank, _what(piece), piece.end_ns - piece.start_ns, piece.awaited) for piece in pieces]


def _what(piece: Piece) -> str:
    if isinstance(piece.doing, Collective):
        return "communication"
    return piece.doing if isinstance(piece.doing, str) else "segment"
