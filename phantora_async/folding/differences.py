"""Counts how ranks of one role differ in the work that they give the GPU, if the user allows it (``--roles similar``).

Between two calls, a rank and the one that would play it have launched work on each stream. The work that only one of
them has counts as differing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from phantora_async.ingest.costs import Priced

Launches = Counter[int]
"""Launches by the key of their cost."""


@dataclass(slots=True)
class Difference:
    """The differences between a rank and the one that would play it, in what both have done. `played`: figures of the
    latter.
    """

    rank: int
    played_by: int
    launches: int = 0
    played_launches: int = 0
    gpu_ns: int = 0
    """The GPU time of its launches, each alone on the GPU."""
    played_gpu_ns: int = 0
    differing_launches: int = 0
    """The launches that one of the two has and the other has not."""
    differing_gpu_ns: int = 0
    host_waits: int = 0
    """Its waits for GPU work."""
    played_host_waits: int = 0
    host_ns: int = 0
    """The largest difference between the host times before a call."""
    memory_nbytes: int = 0
    """The largest difference between peaks of allocated memory."""

    def add(self, own: Launches, played: Launches, known: Mapping[int, Priced]) -> None:
        """Adds work between the same two calls, on one stream."""
        self.launches += own.total()
        self.played_launches += played.total()
        self.gpu_ns += _gpu_ns(own, known)
        self.played_gpu_ns += _gpu_ns(played, known)
        if own != played:
            for more in (own - played, played - own):
                self.differing_launches += more.total()
                self.differing_gpu_ns += _gpu_ns(more, known)

    def add_amounts(self, host_ns: int, memory_nbytes: int) -> None:
        """Adds the differences of host time and memory at a call."""
        self.host_ns = max(self.host_ns, host_ns)
        self.memory_nbytes = max(self.memory_nbytes, memory_nbytes)

    def document(self) -> dict[str, Any]:
        return {
            "rank": self.rank,
            "played_by": self.played_by,
            "launches": self.launches,
            "played_launches": self.played_launches,
            "gpu_ns": self.gpu_ns,
            "played_gpu_ns": self.played_gpu_ns,
            "differing_launches": self.differing_launches,
            "differing_gpu_ns": self.differing_gpu_ns,
            "host_waits": self.host_waits,
            "played_host_waits": self.played_host_waits,
            "host_ns": self.host_ns,
            "memory_nbytes": self.memory_nbytes,
        }


def _gpu_ns(launches: Launches, known: Mapping[int, Priced]) -> int:
    return sum(count * known[key].cost.solo_ns for key, count in launches.items() if key in known)
