"""Measures how far each model is from kernels measured on a GPU: `python -m laboratory.fits.model_error [--gpu NAME]
[--worst N] [FILE]`.

FILE holds measured kernels and library calls, by default profiles/measured/GPU-kernels.jsonl.gz: a line of provenance,
then a line for each signature with its median time in microseconds. Prints a table: errors of kernels that
the models were fitted to, for the most part (laboratory.fits.left_out has those of others).
"""

from __future__ import annotations

import argparse
import gzip
import json
from collections import defaultdict
from dataclasses import dataclass
from math import exp, log, sqrt
from pathlib import Path

import profiles
from profiles.descriptions.gpu import Gpu, load_gpu
from profiles.models.dispatch import estimate
from profiles.signature import parse
from profiles.titles import title

MEASURED = Path(profiles.__file__).parent / "measured"


@dataclass(frozen=True, slots=True)
class Measured:
    signature: str
    us: float
    where: str
    """`alone`, with the caches read over before, or `in a training step`."""


@dataclass(frozen=True, slots=True)
class Compared:
    measured: Measured
    modelled_us: float
    model: str

    @property
    def off(self) -> float:
        return log(self.modelled_us / self.measured.us)


@dataclass(frozen=True, slots=True)
class Errors:
    count: int
    bias: float
    """The mean of ln(modelled / measured)."""
    error: float
    """The mean of its absolute values."""
    left_out: float
    """Error if each kernel is corrected by the bias of all others: what a correction factor would gain."""
    of_time: float
    """The sum of absolute errors over the sum of measured times."""


def read(path: Path) -> list[Measured]:
    with gzip.open(path, "rt") as file:
        next(file)  # provenance
        return [Measured(one["signature"], one["us"], one["where"]) for one in map(json.loads, file)]


def compare(gpu: Gpu, found: list[Measured]) -> dict[str, list[Compared]]:
    """The comparisons by model."""
    groups: dict[str, list[Compared]] = defaultdict(list)
    for one in found:
        modelled = estimate(gpu, parse(one.signature))
        groups[modelled.model].append(Compared(one, modelled.solo_ns / 1e3, modelled.model))
    return groups


def errors_of(found: list[Compared]) -> Errors:
    """Weights grow with the root of the time: long kernels decide a job's time, and short ones are many."""
    offs = [(sqrt(one.measured.us), one.off) for one in found]
    weights = sum(weight for weight, _ in offs)
    sums = sum(weight * off for weight, off in offs)
    left_out = sum(
        weight * abs(off - (sums - weight * off) / (weights - weight)) if weights > weight else weight * abs(off)
        for weight, off in offs
    )
    error = sum(weight * abs(off) for weight, off in offs)
    differences = sum(abs(one.modelled_us - one.measured.us) for one in found)
    measured = sum(one.measured.us for one in found)
    return Errors(len(found), sums / weights, error / weights, left_out / weights, differences / measured)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m laboratory.fits.model_error", description=__doc__)
    parser.add_argument("file", nargs="?", type=Path, metavar="FILE")
    parser.add_argument("--gpu", default="h200")
    parser.add_argument("--worst", type=int, default=0, metavar="N", help="also list the N kernels most off")
    arguments = parser.parse_args()
    groups = compare(load_gpu(arguments.gpu), read(arguments.file or MEASURED / f"{arguments.gpu}-kernels.jsonl.gz"))
    print("| model | kernels | bias | mean error | each left out | error of the time |")
    print("| --- | ---: | ---: | ---: | ---: | ---: |")
    for model, found in sorted(groups.items()):
        errors = errors_of(found)
        shares = f"{exp(errors.bias) - 1:+.0%} | {errors.error:.0%} | {errors.left_out:.0%} | {errors.of_time:.0%}"
        print(f"| {model} | {errors.count} | {shares} |")
    every = [one for found in groups.values() for one in found]
    for one in sorted(every, key=lambda one: -abs(one.off) * sqrt(one.measured.us))[: arguments.worst]:
        print(f"{one.measured.us:10.1f} us {exp(one.off) - 1:+6.0%} {one.model}: {title(one.measured.signature)}")


if __name__ == "__main__":
    main()
