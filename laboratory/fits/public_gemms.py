"""The model of matrix products beside public measurements on other GPUs: `python -m laboratory.fits.public_gemms`.

profiles/measured/public-gemms.csv.gz has the products and says where they come from. Prints for each GPU how far the
model is off: the median of simulated over measured, the median of the errors without their sign, and the 90th
percentile of these.
"""

from __future__ import annotations

import argparse
import csv
import gzip
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from statistics import median

import profiles
from profiles.descriptions.gpu import Gpu, load_gpu
from profiles.models.dispatch import estimate
from profiles.signature import Gemm

MEASURED = Path(profiles.__file__).parent / "measured" / "public-gemms.csv.gz"


def measured() -> dict[str, list[tuple[Gemm, float]]]:
    """The products of each GPU, with their times in ns."""
    found: dict[str, list[tuple[Gemm, float]]] = defaultdict(list)
    with gzip.open(MEASURED, "rt") as file:
        for row in csv.DictReader(line for line in file if not line.startswith("#")):
            found[row["gpu"]].append((_product(int(row["m"]), int(row["n"]), int(row["k"])), float(row["us"]) * 1e3))
    return dict(found)


def _product(m: int, n: int, k: int) -> Gemm:
    """The product as cuBLAS sees it: by columns, the weights turned."""
    return Gemm("cublasGemmEx", "t", "n", n, m, k, 1, "bf16", "bf16", "bf16", "f32", "default", "", ())


def ratios(gpu: Gpu, products: list[tuple[Gemm, float]]) -> list[float]:
    """The simulated times over the measured ones."""
    return [estimate(gpu, product).solo_ns / ns for product, ns in products]


def errors(found: list[float]) -> tuple[float, float, float]:
    """The median with its sign, the median without, and the 90th percentile without."""
    far = sorted(abs(ratio - 1) for ratio in found)
    return median(found) - 1, median(far), far[int(0.9 * len(far))]


def print_errors(by_key: Mapping[tuple[str, ...], list[float]]) -> None:
    """Prints a row of a table for each key: its words, how many ratios it has, and their errors."""
    for key, found in sorted(by_key.items()):
        middle, typical, high = errors(found)
        print(f"| {' | '.join(key)} | {len(found)} | {middle:+.1%} | {typical:.1%} | {high:.0%} |")


def main() -> None:
    argparse.ArgumentParser(prog="python -m laboratory.fits.public_gemms", description=__doc__).parse_args()
    print("| GPU | products | median | median error | 90th percentile |")
    print("| --- | ---: | ---: | ---: | ---: |")
    print_errors({(name,): ratios(load_gpu(name), products) for name, products in measured().items()})


if __name__ == "__main__":
    main()
