"""Requests that an inference engine serves, in virtual time: how long each waits for tokens, how many run at once, and
how many blocks of keys and values they hold.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median
from typing import Any

from emu.contract import records
from emu.contract.records import ResponseEventKind
from phantora_async.report.stated_values import EACH_ITS_OWN, Sharing
from phantora_async.virtual_time import GenerationNote
from phantora_async.wording import seconds

Document = dict[str, Any]
Notes = Mapping[int, Sequence[GenerationNote]]
LISTED = 256
"""The most requests that are listed. Figures are of all."""
POINTS = 256
"""The most changes of a rank's batch, and of its blocks, that are listed."""


@dataclass(frozen=True, slots=True)
class ServedRequest:
    """A request that is complete."""

    rank: int
    arrived_ns: int
    first_ns: int
    """The instant at which the program knew the first token of the response."""
    ended_ns: int
    prompt_tokens: int
    tokens: int

    @property
    def first_token_ns(self) -> int:
        return self.first_ns - self.arrived_ns

    @property
    def per_token_ns(self) -> float | None:
        """The time of a token after the first one; None if there is none."""
        return (self.ended_ns - self.first_ns) / (self.tokens - 1) if self.tokens > 1 else None

    @property
    def latency_ns(self) -> int:
        return self.ended_ns - self.arrived_ns


def requests_of(notes: Notes) -> list[ServedRequest]:
    """The complete requests, in the order of ranks and then of their ends."""
    found = []
    for rank, told in sorted(notes.items()):
        arrived: dict[int, tuple[int, int]] = {}
        first: dict[int, int] = {}
        for note in told:
            if note.kind != records.RESPONSE:
                continue
            number, tokens = note.second, note.third
            if note.first == ResponseEventKind.ARRIVED:
                arrived[number] = note.at_ns, tokens
                first.pop(number, None)
            elif note.first == ResponseEventKind.FIRST:
                first[number] = note.at_ns
            elif note.first == ResponseEventKind.ENDED and number in arrived and number in first:
                since_ns, prompt = arrived.pop(number)
                found.append(ServedRequest(rank, since_ns, first.pop(number), note.at_ns, prompt, tokens))
    return found


def changes_of(told: Sequence[GenerationNote], kind: int) -> list[tuple[int, int]]:
    """The instants at which a figure changed, and what it was from then on. `kind`: BATCH or KV_BLOCKS. Of several
    changes at one instant the last one counts.
    """
    return list({note.at_ns: note.first for note in told if note.kind == kind}.items())


def serving_document(notes: Notes, until_ns: int, sharing: Sharing = EACH_ITS_OWN) -> Document:
    """The report's part on requests, of all ranks together; ranks that share a timeline count each."""
    requests = requests_of(notes)
    many = {rank: len(sharing.get(rank, (rank,))) for rank in notes}
    counted = [request for request in requests for _ in range(many[request.rank])]
    batches = {rank: changes_of(told, records.BATCH) for rank, told in notes.items()}
    blocks = {rank: changes_of(told, records.KV_BLOCKS) for rank, told in notes.items()}
    busy_ns = {rank: _time_above_zero(changes, until_ns) for rank, changes in batches.items()}
    rates = [0.0, 0.0]
    for rank, generating_ns in busy_ns.items():
        own = [request for request in requests if request.rank == rank]
        if generating_ns:
            rates[0] += many[rank] * len(own) / generating_ns * 1e9
            rates[1] += many[rank] * sum(request.tokens for request in own) / generating_ns * 1e9
    document: Document = {
        "requests": len(counted),
        "prompt_tokens": sum(request.prompt_tokens for request in counted),
        "tokens": sum(request.tokens for request in counted),
        "requests_per_s": rates[0],
        "tokens_per_s": rates[1],
        "first_token_ns": _spread([request.first_token_ns for request in counted]),
        "per_token_ns": _spread([ns for request in counted if (ns := request.per_token_ns) is not None]),
        "latency_ns": _spread([request.latency_ns for request in counted]),
        "batch": _level(batches, busy_ns, until_ns),
        "listed": [_listed(request) for request in requests[:LISTED]],
        "over_time": [
            {"rank": rank, "batch": _thinned(batches[rank]), "kv_blocks": _thinned(blocks[rank])}
            for rank in sorted(notes)[:LISTED]
        ],
    }
    room = max((note.second for told in notes.values() for note in told if note.kind == records.KV_BLOCKS), default=0)
    if room:
        document["kv_blocks"] = _level(blocks, busy_ns, until_ns) | {"blocks": room}
    return document


def _listed(request: ServedRequest) -> Document:
    return {
        "rank": request.rank,
        "arrived_ns": request.arrived_ns,
        "first_token_ns": request.first_token_ns,
        "per_token_ns": request.per_token_ns,
        "latency_ns": request.latency_ns,
        "prompt_tokens": request.prompt_tokens,
        "tokens": request.tokens,
    }


def _spread(values: Sequence[float]) -> Document | None:
    """Mean, median, and the values that 90 % and 99 % do not exceed; None without values."""
    if not values:
        return None
    ordered = sorted(values)
    return {
        "mean": sum(ordered) / len(ordered),
        "median": median(ordered),
        "p90": ordered[-(-len(ordered) * 90 // 100) - 1],
        "p99": ordered[-(-len(ordered) * 99 // 100) - 1],
    }


def spans(changes: Sequence[tuple[int, int]], until_ns: int) -> list[tuple[int, int, int]]:
    """The times between changes: from, until, and the figure."""
    return [(at_ns, end_ns, value) for (at_ns, value), (end_ns, _) in pairwise([*changes, (until_ns, 0)])]


def _time_above_zero(changes: Sequence[tuple[int, int]], until_ns: int) -> int:
    return sum(end_ns - from_ns for from_ns, end_ns, value in spans(changes, until_ns) if value)


def _level(levels: Mapping[int, Sequence[tuple[int, int]]], busy_ns: Mapping[int, int], until_ns: int) -> Document:
    """The most of a figure on one rank, and its mean over the time in which ranks generate."""
    above = [
        (end_ns - from_ns) * value for changes in levels.values() for from_ns, end_ns, value in spans(changes, until_ns)
    ]
    most = max((value for changes in levels.values() for _, value in changes), default=0)
    return {"mean": sum(above) / max(sum(busy_ns.values()), 1), "most": most}


def _thinned(changes: Sequence[tuple[int, int]]) -> list[list[int]]:
    """Returns at most POINTS changes. The largest value of several neighbours stands for all of them."""
    each = -(-len(changes) // POINTS)
    groups = [changes[first : first + each] for first in range(0, len(changes), max(each, 1))]
    return [[group[0][0], max(value for _, value in group)] for group in groups]


def serving_notes(serving: Mapping[str, Any]) -> list[str]:
    """The notes on requests for the terminal."""
    if not serving["requests"]:
        return []
    text = (
        f"serving: {serving['requests']:,} requests, {serving['tokens']:,} tokens; {serving['requests_per_s']:,.1f} "
        f"requests/s and {serving['tokens_per_s']:,.0f} tokens/s while it generates; batch of "
        f"{serving['batch']['mean']:.1f} on average, {serving['batch']['most']:,} at most"
    )
    blocks = serving.get("kv_blocks")
    if blocks:
        text += f"; at most {blocks['most']:,} of {blocks['blocks']:,} KV blocks in use"
    notes = [text]
    for name, title in (
        ("first_token_ns", "time to first token"),
        ("per_token_ns", "time per output token"),
        ("latency_ns", "latency"),
    ):
        spread = serving[name]
        if spread is not None:
            figures = ", ".join(f"{key} {seconds(round(spread[key]))}" for key in ("median", "p90", "p99"))
            notes.append(f"  {title}: {figures}")
    return notes
