"""Models vLLM's fused product of experts (`fused_moe_kernel`, Triton): each token's row times the weights of the
experts that were chosen for it.

The program returns at once where no row is left, and which experts have rows is data, so its work does not follow from
the program. It follows from four of its numbers: N and K (the outputs and inputs of an expert), num_valid_tokens (pairs
of a token and an expert) and EM (rows with those that fill tiles), which says how many experts there are. Pairs are
taken as spread evenly over the experts. A tile's products count whole, however few of its rows are used.

With expert parallelism a rank has the weights of some experts, and those of the pairs that chose them: how many bytes
lie behind the weights' pointer says how many.

    start + rows / bandwidth + norm of (weights / bandwidth, waves x (tile + K / tile's K x (step + its products)))
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil

from profiles.descriptions.gpu import Gpu
from profiles.models.machine import Estimate, Machine, both, overlapped
from profiles.signature import Triton, dtype_nbytes

KERNEL = "fused_moe_kernel"
FAMILY = "experts"
NUMBERS, WEIGHTS = ("N", "K", "EM", "num_valid_tokens"), "b_ptr"
START_NS = 4_970.0  # an instance begins: where its rows are and whose weights it needs, then their first loads
TILE_NS = 720.0  # a tile begins and ends
STEP_NS = 160.0  # a step of its loop, whatever the tile's size
RATE = 0.953  # share of the peak rate at which a step's products run
UNALIGNED = 15.5  # times as long where rows do not begin at 16 items, so that each item is loaded for itself
BESIDE = 3.01  # exponent that joins weights and products
ROW_STREAM = 1.09  # times the time of a pair's rows, which nothing hides
ALIGNED = 16
WRITTEN_NBYTES = 2.0  # of an item of the result
DTYPES = {"bf16": "bf16", "f16": "f16", "f32": "tf32", "f8E4M3FN": "f8e4m3", "f8E5M2": "f8e5m2", "i8": "i8"}
_PRODUCT = re.compile(r"tt\.dot\b[^|]*: tensor<(\d+)x(\d+)x(\w+)> \* tensor<(\d+)x(\d+)x(\w+)>")
_WEIGHTS = re.compile(r"%b_ptr: !tt\.ptr<(\w+)>")


@dataclass(frozen=True, slots=True)
class Experts:
    """A product of experts: `pairs` rows of `inputs` items, each times the `outputs` x `inputs` weights of one of
    `experts`.
    """

    pairs: int
    experts: int
    outputs: int
    inputs: int
    tile: tuple[int, int, int]
    """Rows, outputs and inputs that an instance multiplies at once."""
    dtype: str

    @property
    def used(self) -> int:
        """The experts that have rows."""
        return min(self.pairs, self.experts)

    @property
    def tiles(self) -> int:
        rows = ceil(self.pairs / max(self.used, 1) / self.tile[0])
        return self.used * rows * ceil(self.outputs / self.tile[1])

    @property
    def weights_nbytes(self) -> float:
        return dtype_nbytes(self.dtype) * self.used * self.outputs * self.inputs

    @property
    def rows_nbytes(self) -> float:
        """The bytes of a row in and a row out for each pair."""
        return self.pairs * (dtype_nbytes(self.dtype) * self.inputs + WRITTEN_NBYTES * self.outputs)

    @property
    def flops(self) -> float:
        return 2.0 * self.pairs * self.outputs * self.inputs


def experts(gpu: Gpu, what: Triton, numbers: Mapping[str, object]) -> Estimate | None:
    """The estimate of a launch; None for other kernels and for a program that is unlike those known."""
    problem = problem_of(what, numbers) if what.name == KERNEL else None
    if problem is None:
        return None
    return both(
        gpu,
        lambda machine: experts_ns(machine, problem),
        problem.flops,
        model=FAMILY,
        nbytes=problem.weights_nbytes + problem.rows_nbytes,
        peak=_peak(problem.dtype),
    )


def problem_of(what: Triton, numbers: Mapping[str, object]) -> Experts | None:
    known = [numbers.get(name) for name in NUMBERS]
    product, weights = _PRODUCT.search(what.program), _WEIGHTS.search(what.program)
    if product is None or weights is None or weights[1] not in DTYPES:
        return None
    if not all(isinstance(one, int) and one > 0 for one in known):
        return None
    outputs, inputs, filled, pairs = (int(str(one)) for one in known)
    high, depth, wide = int(product[1]), int(product[2]), int(product[5])
    tile = next(
        (
            (rows, columns, depth)
            for rows, columns in ((high, wide), (wide, high))
            if ceil(filled / rows) * ceil(outputs / columns) == what.grid[0]
        ),
        None,
    )
    if tile is None:
        return None
    # Rows are filled up to whole tiles: at most a tile less one for each expert, or for each pair if these are fewer.
    all_known = filled < pairs * tile[0]
    count = max(round((filled - pairs) / max(tile[0] - 1, 1)), 1) if all_known else pairs
    dtype, nbytes = DTYPES[weights[1]], getattr(numbers.get(WEIGHTS), "nbytes", 0)
    if nbytes:
        own = max(int(nbytes / (dtype_nbytes(dtype) * outputs * inputs)), 1)  # the bytes are rounded up
        ranks = max(round(count / own), 1) if all_known else 1
        count, pairs = min(ceil(count / ranks), own), ceil(pairs / ranks)
    return Experts(pairs, count, outputs, inputs, tile, dtype)


def experts_ns(machine: Machine, what: Experts) -> float:
    gpu, (high, wide, deep) = machine.gpu, what.tile
    per_sm = gpu.peak_flops(_peak(what.dtype)) / gpu.sm_count * 1e-9
    step = STEP_NS + 2.0 * high * wide * deep / (RATE * per_sm)
    if what.inputs % ALIGNED:
        step *= UNALIGNED
    loop = ceil(what.tiles / machine.sms) * (TILE_NS + what.inputs / deep * step)
    rows = ROW_STREAM * what.rows_nbytes / machine.memory_gb_per_s
    return START_NS + rows + overlapped(what.weights_nbytes / machine.memory_gb_per_s, loop, exponent=BESIDE)


def _peak(dtype: str) -> str:
    return dtype if dtype in ("f16", "tf32", "i8") else "f8" if dtype.startswith("f8") else "bf16"
