"""Finds the links that a person means: by a link's own name, its two ends (``leaf0-spine1``), or a port
(``node000/nic2``).

Names of links tell their ends: those of a graph are ``A->B``, those of a built network say owner and port.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence
from itertools import islice

from netsim.errors import TopologyError
from netsim.topology.links import Link

MOST_COMPARED = 20_000
"""The most names among which a similar one is looked for."""
_UP, _DOWN = ("up", "out"), ("down", "in")


def find_links(links: Sequence[Link], name: str) -> tuple[int, ...]:
    """The numbers of the links. Two ends mean both directions, and all parallel cables. Raises TopologyError if there
    are none.
    """
    exact = tuple(number for number, link in enumerate(links) if link.name == name)
    if exact:
        return exact
    pairs = {(name[:at], name[at + 1 :]) for at, letter in enumerate(name) if letter == "-"}
    pairs |= {(b, a) for a, b in pairs}
    half = _half(links)
    found = tuple(number for number, link in enumerate(links) if _ends(link.name, half) in pairs)
    found = found or tuple(number for number, link in enumerate(links) if link.name.startswith(f"{name}:"))
    if not found:
        raise TopologyError(f"the network has no link {name!r}; {_alike(links, name, half)}")
    return found


def reverse_links(links: Sequence[Link]) -> list[int]:
    """For each link the number of the one in the other direction, -1 where there is none."""
    half, ends = _half(links), dict[tuple[str, str], list[int]]()
    found = [-1] * len(links)
    for number, link in enumerate(links):
        pair = _ends(link.name, half)
        if pair is None:
            continue
        waiting = ends.get((pair[1], pair[0]))
        if waiting:
            other = waiting.pop(0)
            found[number], found[other] = other, number
        else:
            ends.setdefault(pair, []).append(number)
    return found


def _half(links: Sequence[Link]) -> int:
    """The number of uplinks of a switch of a fat tree."""
    return sum(1 for link in links if re.fullmatch(r"edge0:up\d+", link.name))


def _ends(name: str, half: int) -> tuple[str, str] | None:
    """The ends of a link: from, to."""
    owner, arrow, other = name.partition("->")
    if arrow:
        return owner, other.partition("#")[0]
    owner, _, port = name.partition(":")
    match = re.fullmatch(r"([a-z-]+?)(\d*)", port)
    if match is None:
        return None
    word, number = match[1], int(match[2] or 0)
    if word == "to":
        return owner, _beside(owner, number)
    far = _above(owner, number, half)
    if far is None or word not in _UP + _DOWN:
        return None
    return (owner, far) if word in _UP else (far, owner)


def _beside(owner: str, number: int) -> str:
    """The other router or group that a link of a dragonfly leads to."""
    return re.sub(r"\d+$", str(number), owner)


def _above(owner: str, number: int, half: int) -> str | None:
    """The owner to which the port of this number leads."""
    match = re.fullmatch(r"(leaf|edge|agg)(\d+)", owner)
    if match is None:
        server, slash, _ = owner.rpartition("/")
        return server if slash else None
    kind, switch = match[1], int(match[2])
    if kind == "leaf":
        return f"spine{number}"
    if kind == "edge":
        return f"agg{switch // half * half + number}"
    return f"core{switch % half * half + number}"


def _alike(links: Sequence[Link], name: str, half: int) -> str:
    names = {link.name for link in islice(links, MOST_COMPARED)}
    names |= {name.partition(":")[0] for name in names}
    names |= {f"{ends[0]}-{ends[1]}" for link in islice(links, MOST_COMPARED) if (ends := _ends(link.name, half))}
    padded = re.sub(r"node(\d+)", lambda found: f"node{int(found[1]):03}", name)
    alike = [padded] if padded in names else difflib.get_close_matches(name, sorted(names), 3)
    return f"alike: {', '.join(alike)}" if alike else f"its links are called {', '.join(sorted(names)[:3])} ..."
