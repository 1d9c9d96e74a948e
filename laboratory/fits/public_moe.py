"""The models of vLLM's experts beside public measurements: `python -m laboratory.fits.public_moe`.

laboratory/rows/public-moe.csv.gz has them. A measurement is vLLM's whole call: the pairs of tokens and experts are
sorted, two products of experts with SwiGLU between them, and the sum over a token's experts. The figures were fitted to
rows of an even number whose tokens are spread evenly, least squares of ln(modelled / measured) where large errors count
less. Prints how far the models are off: the median of modelled over measured, the median of the errors without their
sign, and the 90th percentile of these, for both halves.
"""

from __future__ import annotations

import argparse
import csv
import gzip
from collections import defaultdict
from collections.abc import Iterator
from math import ceil
from pathlib import Path
from typing import NamedTuple

from laboratory.fits.public_gemms import print_errors
from profiles.descriptions.gpu import Gpu, load_gpu
from profiles.models.dispatch import estimate
from profiles.models.machine import Machine
from profiles.models.products.experts import Experts, experts_ns
from profiles.signature import Kernel

MEASURED = Path(__file__).parents[1] / "rows" / "public-moe.csv.gz"
GAP_NS = 300.0  # between kernels of a CUDA graph
# Beside these kernels the call chooses the experts and clears memory; version 0.24 also copies its result.
MORE_NS, MORE_NS_24, COPYING = 6_420.0, 14_570.0, "0.24.0"
ZEROS = 1.44  # times the time to write the rows of experts that another rank has, which are zeros
FEW_TILES = ((32, 16), (96, 32), (512, 64))
"""Tokens up to which a tile has so many rows in vLLM's defaults, 128 beyond; files that are tuned for a shape have
others, which the comparison does not follow.
"""


class Row(NamedTuple):
    gpu: str
    version: str
    distribution: str
    tokens: int
    hidden: int
    inner: int
    chosen: int
    experts: int
    divided: int
    """The ranks among which experts are divided."""
    ns: int


def measured() -> Iterator[tuple[Row, bool]]:
    """Rows, and for each whether it is of the half that the figures were fitted to."""
    with gzip.open(MEASURED, "rt") as file:
        lines = csv.reader(line for line in file if not line.startswith(("#", "gpu")))
        for number, one in enumerate(lines):
            yield Row(one[0], one[1], one[2], *map(int, one[3:])), number % 2 == 0


def tile(tokens: int) -> tuple[int, int, int]:
    rows = next((rows for most, rows in FEW_TILES if tokens <= most), 128)
    return (rows, 64, 128) if tokens <= 64 else (rows, 128, 64)


def modelled_ns(gpu: Gpu, row: Row) -> float:
    pairs = row.tokens * row.chosen
    here, among = max(round(pairs / row.divided), 1), max(row.experts // row.divided, 1)
    floor, machine = gpu.achieved.kernel_floor_ns, Machine.alone(gpu)

    def product(outputs: int, inputs: int) -> float:
        return floor + experts_ns(machine, Experts(here, among, outputs, inputs, tile(row.tokens), "bf16"))

    def called(name: str, grid: tuple[int, int, int], op: str, *sizes: tuple[int, ...]) -> float:
        return estimate(gpu, Kernel(name, grid, (256, 1, 1), 0, op, sizes)).solo_ns

    blocks = max(ceil(pairs / 256), 1)
    filled = min(pairs + row.experts * (tile(row.tokens)[0] - 1), pairs * tile(row.tokens)[0])
    aligning = ((row.tokens, row.chosen), (), (), (filled,), (ceil(filled / tile(row.tokens)[0]),), (1,))
    align = "_moe_C::moe_align_block_size"
    return (
        called("void vllm::moe::moe_align_block_size_kernel<int>()", (2, 1, 1), align, *aligning)
        + called("void vllm::moe::count_and_sort_expert_tokens_kernel<int>()", (1, blocks, 1), align, *aligning)
        + product(2 * row.inner, row.hidden)
        + called(
            "void vllm::act_and_mul_kernel<c10::BFloat16>()",
            (pairs, 1, 1),
            "_C::silu_and_mul",
            (pairs, row.inner),
            (pairs, 2 * row.inner),
        )
        + product(row.hidden, row.inner)
        + called(
            "void vllm::moe::moe_sum_vec_kernel<c10::BFloat16>()",
            (row.tokens, 1, 1),
            "_moe_C::moe_sum",
            (row.tokens, row.chosen, row.hidden),
            (row.tokens, row.hidden),
        )
        + 5 * GAP_NS
        + (MORE_NS_24 if row.version == COPYING else MORE_NS)
        + ZEROS * (pairs - here) * 2 * (2 * row.inner + row.hidden) / machine.memory_gb_per_s
    )


def main() -> None:
    argparse.ArgumentParser(prog="python -m laboratory.fits.public_moe", description=__doc__).parse_args()
    ratios = defaultdict[tuple[str, ...], list[float]](list)
    gpus = {name: load_gpu(name) for name in ("h100", "h200")}
    for row, is_fitted in measured():
        even = row.distribution == "balanced"
        half = "fitted" if is_fitted and even else "kept"
        spread = "evenly" if even else "unevenly"
        ratios[row.gpu, spread, half].append(modelled_ns(gpus[row.gpu], row) / row.ns)
    print("| GPU | tokens spread | half | calls | median | median error | 90th percentile |")
    print("| --- | --- | --- | ---: | ---: | ---: | ---: |")
    print_errors(ratios)


if __name__ == "__main__":
    main()
