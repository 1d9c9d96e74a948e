"""Links, which flows cross, and the paths that are made of them."""

from __future__ import annotations

from dataclasses import dataclass, field

from netsim.errors import SpecError
from netsim.fields import SpecTable
from netsim.units import MAX_GBPS, MAX_LATENCY_NS, MIN_GBPS

MOST_LINKS = 1_000_000

LinkPath = tuple[int, ...]
"""The ids of links, in the order in which a flow crosses them."""


@dataclass(frozen=True, slots=True)
class Link:
    """One direction of a cable, port or bus. ``name`` is ``<owner>:<port>``, for example ``node000/gpu3:out``."""

    name: str
    gbps: float
    latency_ns: int = 0


@dataclass(slots=True)
class LinkTable:
    """Collects links while a topology is built."""

    links: list[Link] = field(default_factory=list)
    ids: dict[str, int] = field(default_factory=dict)

    def expect(self, count: int) -> None:
        """Raises SpecError if so many more links are too many: for builders that would take long to find out."""
        if len(self.links) + count > MOST_LINKS:
            raise SpecError(f"the network has more than {MOST_LINKS:,} links")

    def add(self, name: str, gbps: float, latency_ns: int = 0) -> int:
        """Adds a link and returns its id. Raises SpecError if the name is taken or the figures are impossible."""
        if name in self.ids:
            raise SpecError(f"link {name}: declared twice")
        if not MIN_GBPS <= gbps <= MAX_GBPS:
            raise SpecError(f"link {name}: capacity {gbps} Gb/s is not in [{MIN_GBPS:g}, {MAX_GBPS}]")
        if not 0 <= latency_ns <= MAX_LATENCY_NS:
            raise SpecError(f"link {name}: latency {latency_ns} ns is not in [0, {MAX_LATENCY_NS}]")
        self.expect(1)
        self.ids[name] = len(self.links)
        self.links.append(Link(name, gbps, latency_ns))
        return self.ids[name]


def read_gbps(table: SpecTable, key: str, default: float | None = None) -> float:
    """A link's capacity."""
    return table.number(key, default, least=MIN_GBPS, most=MAX_GBPS)


def read_latency_ns(table: SpecTable, key: str, default: int = 0) -> int:
    """A link's latency."""
    return table.integer(key, default, least=0, most=MAX_LATENCY_NS)
