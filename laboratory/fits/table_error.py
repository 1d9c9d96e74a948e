"""Measures how far estimates are from a table's times if these had not been measured: `python -m
laboratory.fits.table_error [--gpu NAME] [--worst N] FILE.times...`.

Each time is left out in turn and estimated: by the model alone, and by the model as the other members of its family
correct it. Prints the median and the 90th percentile of the relative errors, by class of work.
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from profiles.cost import CostModel
from profiles.descriptions.gpu import load_gpu
from profiles.signature import Signature, format_signature, parse
from profiles.timings.corrections import Family
from profiles.timings.keys import canonical, family_key, features
from profiles.timings.table import Measured, Table, load_table, merged
from profiles.timings.trace import category_of
from profiles.titles import title


@dataclass(frozen=True, slots=True)
class LeftOut:
    """One time of the table, and its estimates without it."""

    measured: Measured
    category: str
    modelled_ns: float
    corrected_ns: float | None
    """The time corrected by the family; None if no member of it is near."""

    @property
    def model_error(self) -> float:
        return abs(self.modelled_ns / self.measured.solo_ns - 1)

    @property
    def error(self) -> float:
        """The error of the cost model's answer: the corrected time, or else the model's."""
        return abs((self.corrected_ns or self.modelled_ns) / self.measured.solo_ns - 1)


def left_out(model: CostModel, table: Table) -> list[LeftOut]:
    def modelled_ns(what: Signature) -> float:
        return model.cost(format_signature(what)).solo_ns

    families: dict[tuple[str, ...], Family] = {}
    members = []
    for one in table.times.values():
        what = canonical(parse(one.signature))
        family = families.setdefault(family_key(what), Family(modelled_ns))
        members.append((one, what, family, len(family)))
        family.learn(what, one.solo_ns)
    found = []
    for one, what, family, number in members:
        ns = modelled_ns(what)
        factor = family.factor(features(what, ns), but=number)
        found.append(LeftOut(one, category_of(what), ns, ns * factor if factor else None))
    return found


def percentile(errors: Iterable[float], share: float) -> float:
    ordered = sorted(errors)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def row(name: str, found: Sequence[LeftOut]) -> str:
    corrected = [one for one in found if one.corrected_ns]
    model = [one.model_error for one in found]
    errors = [one.error for one in found]
    return (
        f"| {name} | {len(found)} | {percentile(model, 0.5):.1%} | {percentile(model, 0.9):.1%} "
        f"| {len(corrected) / len(found):.0%} | {percentile(errors, 0.5):.1%} | {percentile(errors, 0.9):.1%} |"
    )


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m laboratory.fits.table_error", description=__doc__)
    parser.add_argument("tables", nargs="+", type=Path, metavar="FILE")
    parser.add_argument("--gpu", default="h200")
    parser.add_argument("--least", type=float, default=0.0, metavar="US", help="leave out times below this")
    parser.add_argument("--worst", type=int, default=0, metavar="N", help="also list the N estimates most off")
    arguments = parser.parse_args()
    table = merged(load_table(path) for path in arguments.tables)
    every = [
        one
        for one in left_out(CostModel(load_gpu(arguments.gpu)), table)
        if one.measured.solo_ns >= 1e3 * arguments.least
    ]
    groups: dict[str, list[LeftOut]] = defaultdict(list)
    for one in every:
        groups[one.category].append(one)
    print("| class | times | model: median | 90 % | corrected | then: median | 90 % |")
    print("| --- | ---: | ---: | ---: | ---: | ---: | ---: |")
    for name, found in sorted(groups.items()):
        print(row(name, found))
    if every:
        print(row("**all**", every))
    for one in sorted(every, key=lambda one: -one.error)[: arguments.worst]:
        print(f"{one.measured.solo_ns / 1e3:9.1f} us, {one.error:.0%} off: {title(one.measured.signature)}")


if __name__ == "__main__":
    main()
