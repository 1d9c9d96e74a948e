"""Says which kernels and copies segments consist of, by cost, and how a time is shared among them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import NamedTuple

from phantora_async.ingest.costs import Costs, Priced
from profiles import title

COPIES, COMPUTE = "copies", "compute"
WITHIN = {"copy": "copies within the GPU", "memset": "fills"}
"""The families of work in the GPU's memory that is no kernel, by the first word of its signature."""
OCCUPIED = 0
"""The key of work that occupies a stream without a cost of its own: host functions."""
UNKNOWN = Counter({-1: 1})
"""The contents of a segment of which no rank has reported any."""


class TitledWork(NamedTuple):
    """The work for which a key stands."""

    kind: str
    """The kind of work: COMPUTE, or COPIES from or to the host or another GPU."""
    family: str
    title: str


class Contents:
    """The number of launches of each cost in a segment, by the number of the segment's contents."""

    def __init__(self, told: Mapping[int, Counter[int]], costs: Costs) -> None:
        self._told = told
        self._costs = costs
        self._works: dict[int, TitledWork] = {}

    def of(self, content: int) -> Counter[int]:
        return self._told.get(content, UNKNOWN)

    def priced(self, key: int) -> Priced | None:
        """The signature and cost of the key; None for work that has no cost."""
        return self._costs.priced(key) if key > 0 else None

    def solo_ns(self, key: int) -> int:
        priced = self.priced(key)
        return 0 if priced is None else priced.cost.solo_ns

    def work(self, key: int) -> TitledWork:
        known = self._works.get(key)
        if known is None:
            known = self._works[key] = self._work(key)
        return known

    def _work(self, key: int) -> TitledWork:
        if key == OCCUPIED:
            return TitledWork(COMPUTE, "host functions", "host function")
        if key < 0:
            return TitledWork(COMPUTE, "not told", "kernels that the rank has not told")
        priced = self._costs.priced(key)
        what, _, rest = priced.signature.partition(";")
        if priced.leaves:
            return TitledWork(COPIES, rest.partition(";")[0], title(priced.signature))
        if what in WITHIN:
            return TitledWork(COMPUTE, WITHIN[what], title(priced.signature))
        return TitledWork(COMPUTE, priced.cost.model or "other", title(priced.signature))

    def shares(self, content: int, for_ns: int) -> dict[int, int]:
        """Divides the time of a segment with this content among the keys, in proportion to the kernels' durations. The
        parts add up to `for_ns`.
        """
        weights = {key: self.solo_ns(key) * count for key, count in self.of(content).items()}
        if not any(weights.values()):
            weights = dict.fromkeys(weights, 1)
        total, reached, given = sum(weights.values()), 0, 0
        shares = {}
        for key, weight in weights.items():
            reached += weight
            until = for_ns * reached // total
            shares[key] = until - given
            given = until
        return shares
