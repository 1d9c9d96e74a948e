"""Measures how much the errors of kernels that one model prices go together: `python -m laboratory.fits.together [--gpu
NAME] [FILE]`.

An interval of a step time adds up errors of many signatures. Prints for each model the root mean square of its errors
over their mean, and the correlation of the errors of two signatures: of those that differ in sizes alone, and of those
of different families. FILE: see laboratory.fits.model_error. Long kernels count more, with the root of their time.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from math import nan
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from laboratory.fits.model_error import MEASURED, Compared, compare, read
from profiles.descriptions.gpu import load_gpu
from profiles.signature import parse
from profiles.timings.keys import family_key

FEWEST = 14
"""Kernels of a model of which pairs say something."""


@dataclass(frozen=True, slots=True)
class Together:
    model: str
    kernels: int
    spread: float
    """The root mean square of ln(modelled / measured) over the mean of its absolute values."""
    same_family: float
    """The correlation of two kernels' errors; nan without pairs."""
    other_family: float


def together(model: str, found: Sequence[Compared]) -> Together:
    off = np.array([one.off for one in found])
    weight = np.sqrt([one.measured.us for one in found])
    weight /= weight.sum()
    squared = float(weight @ off**2)
    families = [family_key(parse(one.measured.signature)) for one in found]
    number = {family: place for place, family in enumerate(dict.fromkeys(families))}
    family = np.array([number[one] for one in families])
    same = family[:, None] == family[None, :]

    def correlation(pairs: NDArray[np.bool_]) -> float:
        pairs = pairs & ~np.eye(len(off), dtype=bool)
        among = weight[:, None] * weight[None, :] * pairs
        return float((among * off[:, None] * off[None, :]).sum() / among.sum() / squared) if pairs.any() else nan

    spread = float(squared**0.5 / (weight @ np.abs(off)))
    return Together(model, len(found), spread, correlation(same), correlation(~same))


def mean_of(found: Sequence[Together], name: str) -> float:
    """The mean of a figure, weighted by the kernels of each model."""
    told = [(one.kernels, float(getattr(one, name))) for one in found]
    known = [(kernels, value) for kernels, value in told if value == value]
    return sum(kernels * value for kernels, value in known) / sum(kernels for kernels, _ in known)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m laboratory.fits.together")
    parser.add_argument("--gpu", default="h200")
    parser.add_argument("file", nargs="?", type=Path)
    arguments = parser.parse_args()
    file = arguments.file or MEASURED / f"{arguments.gpu}-kernels.jsonl.gz"
    compared = compare(load_gpu(arguments.gpu), read(file))
    found = [together(model, ones) for model, ones in sorted(compared.items()) if len(ones) >= FEWEST]
    print("| model | kernels | spread | same family | other family |\n| --- | ---: | ---: | ---: | ---: |")
    for one in found:
        print(f"| {one.model} | {one.kernels} | {one.spread:.2f} | {one.same_family:.2f} | {one.other_family:.2f} |")
    means = [mean_of(found, name) for name in ("spread", "same_family", "other_family")]
    print(f"| all | {sum(one.kernels for one in found)} | {' | '.join(f'{mean:.2f}' for mean in means)} |")


if __name__ == "__main__":
    main()
