"""Corrects the modelled time of a signature that was not measured by measured members of its family.

The model's ratio to the measured time changes smoothly with sizes, so the neighbours' ratios are averaged, weighted by
their distance. The model itself counts as a neighbour: far from all members nothing is corrected. Where the neighbours
themselves would be estimated worse so than by the model alone, nothing is corrected either. The figures below were
chosen by `python -m laboratory.fits.table_error` (docs/costs.md).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from profiles.signature import Conv, Gemm, Signature, family_of_text, parse
from profiles.timings.keys import family_key, features, may_be_turned
from profiles.timings.table import Table

REACH = 0.3
"""The distance, in doublings of sizes, at which a neighbour's weight has fallen to 1/e."""
MODEL = 0.02
"""The weight of the model's own answer."""
FURTHEST = 2.0
"""The distance beyond which members do not count."""
SAME_LAYOUT = 1.4
"""The factor on the model's time within which a time of a signature without strides counts as one of dense operands:
other layouts take 2 to 5 times as long.
"""
FEWEST = 4
"""The number of neighbours from which on it is tested whether they help."""
Floats = NDArray[np.float64]
ModelledNs = Callable[[Signature], float]


class Family:
    """The signatures that differ in sizes alone. An answer depends on the table only, not on what was asked before."""

    def __init__(self, modelled_ns: ModelledNs) -> None:
        self._modelled_ns = modelled_ns
        self._members: list[tuple[Signature, float]] = []
        """The members with their measured time in ns."""
        self._places: list[tuple[float, ...]] = []
        self._ratios: dict[int, float] = {}
        """The logarithm of measured over modelled time of members that were neighbours; kept, since models take
        time.
        """

    def learn(self, member: Signature, measured_ns: float) -> None:
        modelled_ns = 0.0 if isinstance(member, (Gemm, Conv)) else self._modelled_ns(member)
        if may_be_turned(member) and measured_ns > SAME_LAYOUT * modelled_ns:
            return
        self._members.append((member, measured_ns))
        self._places.append(features(member, modelled_ns))

    def __len__(self) -> int:
        return len(self._members)

    def factor(self, place: tuple[float, ...], but: int | None = None) -> float | None:
        """The factor on the modelled time of work with these features: 1 where the model alone estimates the neighbours
        better than they estimate each other; None if no member is near. `but`: a member that is left out.
        """
        if not self._members:
            return None
        places = np.array(self._places)
        apart = _distances(places, np.array(place))
        near = [int(number) for number in np.flatnonzero(apart < FURTHEST) if number != but]
        if not near:
            return None
        ratios = np.array([self._ratio(number) for number in near])
        if len(near) >= FEWEST and not _help(places[near], ratios):
            return 1.0
        weights = np.exp(-apart[near] / REACH)
        return float(np.exp(weights @ ratios / (weights.sum() + MODEL)))

    def _ratio(self, number: int) -> float:
        if (known := self._ratios.get(number)) is None:
            member, measured_ns = self._members[number]
            known = self._ratios[number] = float(np.log(measured_ns / self._modelled_ns(member)))
        return known


def _distances(places: Floats, place: Floats) -> Floats:
    found: Floats = np.sqrt(((places - place) ** 2).sum(-1))
    return found


def _help(places: Floats, ratios: Floats) -> bool:
    """Returns true if the neighbours are estimated better by each other than by the model alone."""
    weights = np.exp(-_distances(places[:, None], places[None]) / REACH)
    np.fill_diagonal(weights, 0.0)
    estimates = weights @ ratios / (weights.sum(1) + MODEL)
    return float(np.median(np.abs(ratios - estimates))) <= float(np.median(np.abs(ratios)))


class Families:
    """The families of a table. A family is made when it is first asked for, since a run needs few of them."""

    def __init__(self, table: Table, modelled_ns: ModelledNs) -> None:
        """`modelled_ns`: the model's time on the table's GPU."""
        self._times = table.times
        self._modelled_ns = modelled_ns
        self._alike: dict[str, list[str]] | None = None
        """Canonical texts that begin alike: families of kernels have the name there. None: nobody has asked yet."""
        self._texts: dict[tuple[str, ...], list[str]] = defaultdict(list)
        """Those of such texts that were asked for, by family, until the family is made."""
        self._families: dict[tuple[str, ...], Family] = {}

    def factor(self, what: Signature, modelled_ns: float) -> float | None:
        """The factor on the modelled time; None if no member of its family is near."""
        family = self.of(what)
        return None if family is None else family.factor(features(what, modelled_ns))

    def of(self, what: Signature) -> Family | None:
        key = family_key(what)
        if self._alike is None:
            self._alike = defaultdict(list)
            for text in self._times:
                self._alike[_beginning(text)].append(text)
        for text in self._alike.pop(_beginning(";".join(key)), ()):
            self._texts[family_of_text(text)].append(text)
        if texts := self._texts.pop(key, None):
            family = self._families[key] = Family(self._modelled_ns)
            for text in texts:
                family.learn(parse(text), self._times[text].solo_ns)
        return self._families.get(key)


def _beginning(text: str) -> str:
    """The beginning of a signature: the kind and the field after it, which names the family of each kind that has
    many.
    """
    return ";".join(text.split(";", 2)[:2])
