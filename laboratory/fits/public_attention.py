"""The model of attention to a cache beside public measurements: `python -m laboratory.fits.public_attention`.

laboratory/rows/public-attention.csv.gz has them. A measurement is vLLM's whole call: a kernel that counts blocks, the
attention, a kernel that joins parts where there are any, and in version 0.24 also those that write keys and values to
the cache. The figures were fitted to rows of an even number, least squares of ln(modelled / measured) where large
errors count less. Prints how far the model is off: the median of modelled over measured, the median of the errors
without their sign, and the 90th percentile of these, for both halves.
"""

from __future__ import annotations

import argparse
import csv
import gzip
from collections import defaultdict
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from emu.control.extensions.attention import together
from laboratory.fits.public_gemms import print_errors
from profiles.descriptions.gpu import Gpu, load_gpu
from profiles.models.dispatch import estimate
from profiles.models.products.paged import COMBINE, KERNEL, PREPARE
from profiles.signature import Kernel, Sequences

MEASURED = Path(__file__).parents[1] / "rows" / "public-attention.csv.gz"
GAP_NS = 300.0  # between kernels of a CUDA graph
# Version 0.24: the call does more, and writes keys and values to the cache, by token and by byte.
MORE_NS, TOKEN_NS, WRITTEN = 3055.0, 0.97, 2.58
WRITING = "0.24.0"


class Row(NamedTuple):
    gpu: str
    version: str
    eight_bit: int
    sequences: int
    queries: int
    keys: int
    heads: int
    key_heads: int
    depth: int
    window: int
    ns: int

    @property
    def kind(self) -> str:
        return "decoding" if self.queries == 1 and self.keys > 1 else "context"


def measured(every: int = 1) -> list[tuple[Row, bool]]:
    """Rows, and for each whether it is of the half that the figures were fitted to. `every`: one of so many."""
    found, number = [], defaultdict[tuple[object, ...], int](int)
    with gzip.open(MEASURED, "rt") as file:
        for n, one in enumerate(csv.reader(line for line in file if not line.startswith(("#", "gpu")))):
            row = Row(one[0], one[1], *map(int, one[2:]))
            number[row[:3], row.kind] += 1
            if n % every == 0:
                found.append((row, number[row[:3], row.kind] % 2 == 1))
    return found


@lru_cache(maxsize=1 << 14)
def counted(queries: int, keys: int, window: int, joined: int) -> tuple[int, ...]:
    return together(((queries, keys),), window - 1 if window else None, 0, joined=joined)


def call(row: Row) -> list[Kernel]:
    """The kernels of the call that have a model."""
    one = counted(row.queries, row.keys, row.window, row.heads // row.key_heads)
    n = row.sequences
    extent = (n, n * one[1], n * one[2], n * one[3], n * one[4], n * one[5], one[6], n * one[7])
    dtype = "cutlass::float_e4m3_t" if row.eight_bit else "cutlass::bfloat16_t"
    pages = (n * row.keys, 1, row.key_heads, row.depth)
    sizes = ((n * row.queries, row.heads, row.depth), pages, pages)
    of = ((132, 1, 1), (384, 1, 1), 0, "_vllm_fa3_C::fwd", sizes)
    return [
        Sequences(name, *of, *extent)
        for name in (
            f"void flash::{PREPARE}()",
            f"void cutlass::device_kernel<flash::{KERNEL}<{dtype}>>()",
            f"void cutlass::device_kernel<flash::{COMBINE}<{dtype}>>()",
        )
    ]


def modelled_ns(gpu: Gpu, row: Row) -> float:
    counts, attends, joins = (estimate(gpu, kernel) for kernel in call(row))
    ns = counts.solo_ns + attends.solo_ns + 2 * GAP_NS
    units = row.key_heads * row.sequences * -(-row.queries * row.heads // row.key_heads // 128)
    hides = 0 < row.window < row.keys
    if not hides and 2 * units <= gpu.sm_count and row.keys > 128:
        ns += joins.solo_ns - gpu.achieved.kernel_floor_ns
    if row.version == WRITING:
        tokens, item = row.sequences * row.queries, 1 if row.eight_bit else 2
        nbytes = tokens * row.key_heads * row.depth * (4 + 2 * item)
        ns += MORE_NS + TOKEN_NS * tokens + WRITTEN * nbytes / gpu.memory.bandwidth_gb_per_s
    return ns


def main() -> None:
    argparse.ArgumentParser(prog="python -m laboratory.fits.public_attention", description=__doc__).parse_args()
    ratios = defaultdict[tuple[str, ...], list[float]](list)
    gpus = {name: load_gpu(name) for name in ("h100", "h200")}
    for row, is_fitted in measured():
        half = "fitted" if is_fitted else "kept"
        ratio = modelled_ns(gpus[row.gpu], row) / row.ns
        for bits in ("8" if row.eight_bit else "16", "all"):
            ratios[row.gpu, row.kind, bits, half].append(ratio)
    print("| GPU | | bits | half | calls | median | median error | 90th percentile |")
    print("| --- | --- | --- | --- | ---: | ---: | ---: | ---: |")
    print_errors(ratios)


if __name__ == "__main__":
    main()
