"""The output of `ibnetdiscover`: every switch and card of an InfiniBand fabric, and which ports are joined."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from dataclasses import dataclass, field

from profiles.errors import ProfileError
from profiles.sources.facts import Fact, Facts

_NODE = re.compile(r'^(Switch|Ca|Rt)\s+(\d+)\s+"([^"]+)"\s*#\s*"([^"]*)"')
_PORT = re.compile(r'^\[(\d+)\](?:\([0-9a-fA-F]+\))?\s+"([^"]+)"\[(\d+)\]')
_RATE = re.compile(r"\b(\d+)x(SDR|DDR|QDR|FDR10|FDR|EDR|HDR|NDR|XDR)\b")
_LANE_GBPS = {
    "SDR": 2.0,
    "DDR": 4.0,
    "QDR": 8.0,
    "FDR10": 10.0,
    "FDR": 14.0,
    "EDR": 25.0,
    "HDR": 50.0,
    "NDR": 100.0,
    "XDR": 200.0,
}


@dataclass(slots=True)
class _Node:
    kind: str
    description: str
    ports: list[tuple[str, float]] = field(default_factory=list)
    """The other end, and Gbit/s."""


def is_fabric(text: str) -> bool:
    return bool(re.search(r"^(?:switchguid|caguid)=", text, re.MULTILINE) and _NODE_LINE.search(text))


_NODE_LINE = re.compile(r'^(?:Switch|Ca)\s+\d+\s+"', re.MULTILINE)


def read_fabric(text: str, origin: str) -> Facts:
    """Servers, cards, leaf switches and how many uplinks they have. Raises ProfileError if no card is in it."""
    nodes = _nodes(text)
    cards = {name: node for name, node in nodes.items() if node.kind == "Ca" and node.ports}
    switches = {name: node for name, node in nodes.items() if node.kind == "Switch"}
    of_server: dict[str, list[str]] = defaultdict(list)
    for name, node in cards.items():
        of_server[_server(node.description)].append(name)
    if not of_server:
        raise ProfileError(f"{origin}: no card (Ca) with a link in the output of ibnetdiscover")
    numbers = Counter(len(names) for names in of_server.values())
    nics, servers = max(numbers.items(), key=lambda item: (item[0] * item[1], item[0]))
    compute = {server: sorted(names, key=lambda one: cards[one].description) for server, names in of_server.items()}
    compute = {server: names for server, names in compute.items() if len(names) == nics}
    notes = []
    if len(numbers) > 1:
        others = sum(number for count, number in numbers.items() if count != nics)
        notes.append(f"{origin}: left out are {others} machines with another number of cards (storage, management)")
    gbps = Counter(cards[one].ports[0][1] for names in compute.values() for one in names).most_common(1)[0][0]
    facts: dict[str, Fact[object]] = {
        "servers": Fact(servers, f"{origin}: machines with {nics} cards"),
        "nics": Fact(nics, f"{origin}: cards of a machine"),
        "nic_gbps": Fact(gbps, f"{origin}: speed of their links"),
        "link": Fact("infiniband", origin),
    }
    leaves = {
        other for names in compute.values() for one in names for other, _ in cards[one].ports if other in switches
    }
    facts |= _of_leaves(origin, leaves, switches, cards, compute)
    return Facts(**facts, notes=tuple(notes))  # type: ignore[arg-type]


def _nodes(text: str) -> dict[str, _Node]:
    nodes: dict[str, _Node] = {}
    current: _Node | None = None
    for line in text.splitlines():
        if found := _NODE.match(line):
            current = nodes.setdefault(found[3], _Node(found[1], found[4]))
        elif current is not None and (found := _PORT.match(line)):
            rate = _RATE.search(line)
            current.ports.append((found[2], int(rate[1]) * _LANE_GBPS[rate[2]] if rate else 0.0))
    return nodes


def _server(description: str) -> str:
    """The host's name: a card describes itself as `node001 mlx5_0` or `node001 HCA-1`."""
    return description.split()[0] if description.split() else ""


def _of_leaves(
    origin: str,
    leaves: set[str],
    switches: dict[str, _Node],
    cards: dict[str, _Node],
    compute: dict[str, list[str]],
) -> dict[str, Fact[object]]:
    """The facts of the fabric: whether each of a server's cards has a leaf switch of its own, how many servers a leaf
    has, and its uplinks.
    """
    own = {one for names in compute.values() for one in names}
    served: list[int] = []
    ratios: list[float] = []
    for name in leaves:
        down = [gbps for other, gbps in switches[name].ports if other in own]
        up = [gbps for other, gbps in switches[name].ports if other in switches]
        served.append(len({_server(cards[other].description) for other, _ in switches[name].ports if other in own}))
        if up and sum(up):
            ratios.append(sum(down) / sum(up))
    facts: dict[str, Fact[object]] = {}
    if not leaves:
        return facts
    of_card = [[cards[one].ports[0][0] for one in names] for names in compute.values()]
    rails = all(len(set(one)) == len(one) for one in of_card) and len(of_card[0]) > 1
    if len(leaves) == 1 and not ratios:
        facts["fabric"] = Fact("switch", f"{origin}: one switch has all cards")
    else:
        facts["fabric"] = Fact("rail" if rails else "leaf-spine", f"{origin}: switches of a machine's cards")
    facts["servers_per_leaf"] = Fact(max(served), f"{origin}: machines at a leaf switch")
    if ratios:
        # A leaf that is not full looks less oversubscribed than it is: the fullest one counts.
        facts["oversubscription"] = Fact(round(max(1.0, *ratios), 2), f"{origin}: rates down and up of a leaf switch")
    return facts
