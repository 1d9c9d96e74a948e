"""The timeline computed the plain way: every rate anew at every event, from the facts in canonical order.

Slow and short; it defines what the fast core must answer, bit for bit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from netsim.units import BYTE_UNITS


@dataclass(slots=True)
class Fact:
    """One flow as submitted: units of ``netsim.units``."""

    key: object
    start: int
    nbytes: int
    links: tuple[tuple[int, int], ...]
    cap: int | None = None
    ways: tuple[tuple[int, tuple[tuple[int, int], ...]], ...] = ()
    """Other links from a tick on, for flows that reroute; ``links`` before the first."""

    def links_at(self, tick: int) -> tuple[tuple[int, int], ...]:
        """Returns the links in use at an instant."""
        now = self.links
        for at, links in self.ways:
            if at <= tick:
                now = links
        return now


def fair_rates(flows: Mapping[int, Sequence[tuple[int, int]]], capacity: Mapping[int, int]) -> dict[int, int]:
    """Weighted max-min rates by progressive filling; links that tie for the smallest share saturate together."""
    left = {link: capacity[link] for links in flows.values() for link, _ in links}
    rates: dict[int, int] = {}
    while len(rates) < len(flows):
        weight: dict[int, int] = {}
        for flow, links in flows.items():
            if flow not in rates:
                for link, w in links:
                    weight[link] = weight.get(link, 0) + w
        share = min(left[link] // w for link, w in weight.items())
        full = {link for link, w in weight.items() if left[link] // w == share}
        for flow, links in flows.items():
            if flow not in rates and any(link in full for link, _ in links):
                rates[flow] = share
                for link, w in links:
                    left[link] -= w * share
    return rates


def _merged(flow: int, fact: Fact, tick: int) -> list[tuple[int, int]]:
    merged: dict[int, int] = {}
    for link, w in fact.links_at(tick):
        merged[link] = merged.get(link, 0) + w
    own = [(-1 - flow, 1)] if fact.cap is not None else []
    return sorted(merged.items()) + own


def completions(
    facts: Mapping[int, Fact], capacities: Mapping[int, Sequence[tuple[int, int]]]
) -> dict[int, int | None]:
    """Completion tick of every flow (``None``: stalled for ever). ``capacities``: link -> [(from tick, rate units)]."""
    done: dict[int, int | None] = dict.fromkeys(facts)
    for flow, fact in facts.items():
        if fact.nbytes == 0 or not (fact.links or fact.cap is not None):
            done[flow] = fact.start
    starts = sorted((f for f in facts if done[f] is None), key=lambda f: facts[f].start)
    turns = sorted(
        {at for steps in capacities.values() for at, _ in steps} | {at for f in facts.values() for at, _ in f.ways}
    )
    left: dict[int, int] = {}
    rates: dict[int, int] = {}
    now = 0
    while starts or left:
        finish = {f: max(now + 1, now + (2 * left[f] + r) // (2 * r)) for f, r in rates.items() if r > 0}
        times = list(finish.values())
        if starts:
            times.append(facts[starts[0]].start)
        later = [at for at in turns if at > now]
        if later and left:
            times.append(later[0])
        if not times:
            break
        then = min(times)
        for f, r in rates.items():
            left[f] -= r * (then - now)
        now = then
        for f, at in finish.items():
            if at <= now:
                done[f] = at
                del left[f]
        while starts and facts[starts[0]].start <= now:
            first = starts.pop(0)
            left[first] = facts[first].nbytes * BYTE_UNITS
        links = {f: _merged(f, facts[f], now) for f in left}
        capacity: dict[int, int] = {}
        for f in left:
            for link, _ in links[f]:
                if link < 0:
                    capacity[link] = facts[-1 - link].cap or 0
                else:
                    capacity[link] = [rate for at, rate in capacities[link] if at <= now][-1]
        rates = fair_rates({f: links[f] for f in left}, capacity)
    return done
