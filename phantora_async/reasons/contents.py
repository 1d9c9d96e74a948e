"""What segments consist of: their kernels and copies by cost, and how a time is shared among them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import NamedTuple

from emu.contract import records
from phantora_async.ingest.costs import Costs, Priced
from profiles import title

COPIES, COMPUTE = "copies", "compute"
OCCUPIED = 0
"""The key of what occupies a stream without a cost of its own: host functions."""
UNKNOWN = Counter({-1: 1})
"""Of a segment whose contents nobody has told."""


class TitledWork(NamedTuple):
    """What a key stands for."""

    kind: str
    """COMPUTE or COPIES."""
    family: str
    title: str


class Contents:
    """By the number of a segment's contents: how often each cost occurs in it."""

    def __init__(self, told: Mapping[int, Counter[int]], costs: Costs) -> None:
        self._told = told
        self._costs = costs
        self._works: dict[int, TitledWork] = {}

    def of(self, segment: records.Segment) -> Counter[int]:
        return self._told.get(segment.content, UNKNOWN)

    def priced(self, key: int) -> Priced | None:
        """None for what has no cost."""
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
        if what == "copy":
            return TitledWork(COPIES, rest.partition(";")[0], title(priced.signature))
        if what == "memset":
            return TitledWork(COPIES, "fill", title(priced.signature))
        return TitledWork(COMPUTE, priced.cost.model or "other", title(priced.signature))

    def shares(self, segment: records.Segment, for_ns: int) -> dict[int, int]:
        """The time by key, in proportion to the kernels' durations. Adds up to `for_ns`."""
        weights = {key: self.solo_ns(key) * count for key, count in self.of(segment).items()}
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
