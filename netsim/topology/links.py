"""Links: what flows cross, and the paths that are made of them."""

from __future__ import annotations

from dataclasses import dataclass, field

from netsim.errors import SpecError
from netsim.units import MAX_GBPS

LinkPath = tuple[int, ...]
"""Link ids, in the order in which a flow crosses them."""


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

    def add(self, name: str, gbps: float, latency_ns: int = 0) -> int:
        """Id of a new link; SpecError if the name is taken or the figures are impossible."""
        if name in self.ids:
            raise SpecError(f"link {name}: declared twice")
        if not 0 < gbps <= MAX_GBPS:
            raise SpecError(f"link {name}: capacity {gbps} Gb/s is not in (0, {MAX_GBPS}]")
        if latency_ns < 0:
            raise SpecError(f"link {name}: latency {latency_ns} ns is negative")
        self.ids[name] = len(self.links)
        self.links.append(Link(name, gbps, latency_ns))
        return self.ids[name]
