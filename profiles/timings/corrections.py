"""What measured members of a family say about one that was not measured.

The model's ratio to the measured time changes smoothly with sizes, so the neighbours' ratios are averaged, weighted by
their distance. The model itself counts as a neighbour: far from all members nothing is corrected. A family whose own
members would be estimated worse so than by the model alone is not corrected either. The figures below were chosen by
`python -m profiles.tools.table_error` (docs/costs.md).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from math import exp, log, sqrt
from statistics import median

from profiles.signature import Signature, parse
from profiles.timings.keys import family_key, features
from profiles.timings.table import Table

REACH = 0.3
"""Distance, in doublings of sizes, at which a neighbour's weight has fallen to 1/e."""
MODEL = 0.02
"""Weight of the model's own answer."""
FURTHEST = 2.0
"""Members that are all further away say nothing."""
FEWEST = 4
"""Members from which on a family is tested."""


@dataclass(frozen=True, slots=True)
class Correction:
    factor: float
    """To apply to the modelled time."""
    error_share: float
    """How far the neighbours' ratios differ from each other, relative standard deviation."""


@dataclass(slots=True)
class Family:
    points: list[tuple[tuple[float, ...], float]] = field(default_factory=list)
    """Of each member: its features, and the logarithm of measured over modelled time."""
    _tested: int = -1
    """How many members there were when the family was tested."""
    _helps: bool = True

    def learn(self, features: tuple[float, ...], measured_ns: float, modelled_ns: float) -> None:
        self.points.append((features, log(measured_ns / modelled_ns)))

    @property
    def helps(self) -> bool:
        """Members that are left out are estimated better by the others' correction than by the model alone."""
        if self._tested != len(self.points):
            self._tested = len(self.points)
            self._helps = self._tested < FEWEST or self._left_out_better()
        return self._helps

    def _left_out_better(self) -> bool:
        alone, corrected = [], []
        for number, (place, ratio) in enumerate(self.points):
            if found := self.correction(place, but=number):
                alone.append(abs(ratio))
                corrected.append(abs(ratio - log(found.factor)))
        return not alone or median(corrected) <= median(alone)

    def correction(self, features: tuple[float, ...], but: int | None = None) -> Correction | None:
        """None if no member is near. `but`: a member that is left out."""
        total, weighted, squares, nearest = 0.0, 0.0, 0.0, FURTHEST
        for number, (place, ratio) in enumerate(self.points):
            if number == but:
                continue
            distance = sqrt(sum((here - there) ** 2 for here, there in zip(features, place, strict=True)))
            if distance > 3 * FURTHEST:
                continue
            nearest = min(nearest, distance)
            weight = exp(-distance / REACH)
            total += weight
            weighted += weight * ratio
            squares += weight * ratio * ratio
        if nearest >= FURTHEST:
            return None
        mean = weighted / total
        spread = sqrt(max(squares / total - mean * mean, 0.0))
        return Correction(exp(weighted / (total + MODEL)), spread)


class Families:
    """Of a table. A family is made when it is first asked for, since a run needs few of them."""

    def __init__(self, table: Table, modelled_ns: Callable[[Signature], float]) -> None:
        """`modelled_ns`: what the model says on the table's GPU."""
        self._times = table.times
        self._modelled_ns = modelled_ns
        self._alike: dict[str, list[str]] = defaultdict(list)
        """Canonical texts that begin alike: families of kernels have the name there."""
        for text in table.times:
            self._alike[_beginning(text)].append(text)
        self._families: dict[tuple[str, ...], Family] = {}

    def factor(self, what: Signature, modelled_ns: float) -> float | None:
        """To apply to the modelled time; None if no member of its family is near."""
        key = family_key(what)
        for text in self._alike.pop(_beginning(";".join(key)), ()):
            member = parse(text)
            ns = self._modelled_ns(member)
            family = self._families.setdefault(family_key(member), Family())
            family.learn(features(member, ns), self._times[text].solo_ns, ns)
        if (known := self._families.get(key)) is None:
            return None
        found = known.correction(features(what, modelled_ns)) if known.helps else None
        return found.factor if found is not None else None


def _beginning(text: str) -> str:
    """The kind and the field after it, which names the family of each kind that has many."""
    return ";".join(text.split(";", 2)[:2])
