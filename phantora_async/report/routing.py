"""Reports routing that follows the policy of `--moe`: the load of each expert; and what a script chooses by itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from phantora_async.ingest.routing_loads import Router, RoutingLoads, Total
from phantora_async.report.stated_values import EACH_ITS_OWN, Sharing

Document = dict[str, Any]
PLACES = 8
"""The most places that are shown. The JSON report has all."""
EXPERTS = 16
"""The number of experts above which only the BUSIEST and the median of a layer are shown. The JSON report has all."""
BUSIEST = 4
COUNTS = ("histc", "bincount")
"""Operations that count indices: emu.control.routing chooses the indices there if nobody computed them."""
OF_EXPERTS = ("topk", *COUNTS)
"""Operations whose choices are of experts. A module's choice by other operations, such as argmax, may be a class as
well.
"""


def routing_document(policy: str, loads: RoutingLoads, sharing: Sharing = EACH_ITS_OWN) -> Document:
    """The report's part on routing. Loads are sums over ranks."""
    places = [_router(router, totals, sharing) for router, totals in sorted(loads.routers.items())]
    return {"policy": policy, "places": places}


def _router(router: Router, totals: Mapping[tuple[int, int], Total], sharing: Sharing) -> Document:
    many = {rank: len(sharing.get(rank, (rank,))) for _, rank in totals}
    layers = []
    for layer in sorted({layer for layer, _ in totals}):
        ranks = [(many[rank], total) for (number, rank), total in totals.items() if number == layer]
        each = zip(*([n * load for load in total.loads] for n, total in ranks), strict=True)
        calls = sum(n * total.calls for n, total in ranks)
        layers.append({"layer": layer, "calls": calls, "loads": [sum(of) for of in each]})
    return router._asdict() | {"ranks": sum(many.values()), "layers": layers}


def routing_notes(routing: Mapping[str, Any]) -> list[str]:
    """The notes on routing for the terminal; none if the policy has chosen nothing."""
    places = routing["places"]
    if not places:
        return []
    routers = [place for place in places if place["module"] or place["operation"] in COUNTS]
    others = [place for place in places if place not in routers]
    follows = f"scores are not computed; what they choose follows the policy {routing['policy']} (--moe)"
    notes = []
    if routers:
        heading = "routing" if any(map(_of_experts, routers)) else "choices of modules, such as a class or an expert"
        notes += [f"{heading}: {follows}", *_listed([_note(place) for place in routers])]
    if others:
        heading = f"choices of the script itself, such as a class or the next token: {follows}"
        notes += [heading, *_listed([_choice(place) for place in others])]
    return notes


def _listed(places: Sequence[str]) -> list[str]:
    more = len(places) - PLACES
    return [*places[:PLACES], *([f"  {more} more places in the JSON report"] if more > 0 else [])]


def _of_experts(place: Mapping[str, Any]) -> bool:
    return place["operation"] in OF_EXPERTS


def _choice(place: Mapping[str, Any]) -> str:
    """The line on a choice of the script itself, while no module is called."""
    where = place["line"] or "an unknown line"
    return f"  {where}: {place['operation']} chooses {place['chosen']} of {place['candidates']}"


def _note(place: Mapping[str, Any]) -> str:
    layers = place["layers"]
    where = place["module"] or "the script"
    if place["line"]:
        where += f" ({place['line']})"
    if place["operation"] in COUNTS:
        text = f"  {where}: {place['operation']} counts what a compiled kernel chose of {place['candidates']}"
    else:
        text = f"  {where}: {place['operation']} chooses {place['chosen']} of {place['candidates']}"
    if len(layers) > 1:
        text += f" in {len(layers)} layers"
    busiest = max(_imbalance(layer["loads"]) for layer in layers)
    name = "expert" if _of_experts(place) else "candidate"
    first = f"; load per {name}" + (" of the first layer" if len(layers) > 1 else "")
    return f"{text}; the busiest has {busiest:.2f} times the mean load{first}: {_loads(layers[0]['loads'], name)}"


def _loads(loads: Sequence[int], name: str) -> str:
    """The load of each candidate; if there are many, that of the busiest and of those between."""
    shares = _shares(loads)
    if len(shares) <= EXPERTS:
        return " ".join(f"{share:.1%}" for share in shares)
    order = sorted(range(len(shares)), key=lambda number: (-shares[number], number))
    busiest = ", ".join(f"{shares[number]:.1%} ({name} {number})" for number in order[:BUSIEST])
    text = f"{busiest} ... median {shares[order[len(order) // 2]]:.2%}, least {shares[order[-1]]:.2%}"
    idle = sum(load == 0 for load in loads)
    return f"{text}, {idle} of {len(loads)} get nothing" if idle else text


def _imbalance(loads: Sequence[int]) -> float:
    return max(loads) * len(loads) / max(1, sum(loads))


def _shares(loads: Sequence[int]) -> list[float]:
    total = max(1, sum(loads))
    return [load / total for load in loads]
