"""The models of vLLM's kernels beside measurements on an H200: `python -m laboratory.fits.vllm_kernels`.

laboratory/programs/vllm_kernels_on_gpu.py measured them (laboratory/rows/vllm-kernels-h200.jsonl.gz), with the
extensions of vLLM 0.33.0. The figures were fitted to rows of an even number, least squares of ln(modelled / measured)
where large errors count less. Prints for both halves: the median of modelled over measured, the median of the errors
without their sign, and their 90th percentile.
"""

from __future__ import annotations

import argparse
import gzip
import json
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from laboratory.fits.public_gemms import print_errors
from profiles.descriptions.gpu import load_gpu
from profiles.models.dispatch import estimate
from profiles.signature import Kernel

MEASURED = Path(__file__).parents[1] / "rows" / "vllm-kernels-h200.jsonl.gz"
OPS = {
    "norm": "_C::rms_norm",
    "added_norm": "_C::fused_add_rms_norm",
    "rotary": "_C::rotary_embedding",
    "cached": "_C_cache_ops::reshape_and_cache_flash",
    "routed": "_moe_C::topk_softmax",
    "aligned": "_moe_C::moe_align_block_size",
    "summed": "_moe_C::moe_sum",
    "in_groups": "_C::per_token_group_fp8_quant",
}


def measured() -> Iterator[tuple[Kernel, int, bool]]:
    """Kernels, their time in ns, and for each whether it is of the half that the figures were fitted to."""
    number = defaultdict[tuple[object, ...], int](int)
    with gzip.open(MEASURED, "rt") as file:
        for line in file:
            row = json.loads(line)
            op, sizes = row["called"] or OPS[row["op"]], tuple(map(tuple, row["sizes"]))
            alike = op, row["name"].partition("(")[0].partition("<")[0], "Half" in row["name"]
            number[alike] += 1
            what = Kernel(row["name"], tuple(row["grid"]), tuple(row["block"]), 0, op, sizes)
            yield what, row["ns"], number[alike] % 2 == 1


def main() -> None:
    argparse.ArgumentParser(prog="python -m laboratory.fits.vllm_kernels", description=__doc__).parse_args()
    gpu, ratios = load_gpu("h200"), defaultdict[tuple[str, ...], list[float]](list)
    for what, ns, is_fitted in measured():
        found = estimate(gpu, what)
        ratios[found.model, "fitted" if is_fitted else "kept"].append(found.solo_ns / ns)
    print("| model | half | kernels | median | median error | 90th percentile |")
    print("| --- | --- | ---: | ---: | ---: | ---: |")
    print_errors(ratios)


if __name__ == "__main__":
    main()
