"""Models FlashAttention 3, which inference engines call with a cache of keys and values (on Hopper GPUs).

    time = START_NS + work / SMs + blocks / SMs x time of a block + bytes / memory bandwidth + longest row's tail

A tile has 128 pairs of a query and a head, as the heads that share keys are joined, and 128 keys. It takes cycles that
do not depend on how full it is, since a decoding sequence fills few of its rows, and cycles for the pairs in it. Blocks
that are too few for the GPU divide their keys among several, and another kernel joins the parts.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

from profiles.descriptions.gpu import Gpu
from profiles.kernel_names.kernel_name import KernelName
from profiles.models.machine import Estimate, Machine, both, overlapped
from profiles.models.products.attention import TENSOR_CYCLES, TILE
from profiles.signature import Kernel, Sequences, Shape, dtype_nbytes

KERNEL, COMBINE, PREPARE = "FlashAttnFwdSm90", "FlashAttnFwdCombine", "prepare_varlen_num_blocks_kernel"
# SM cycles by depth: of a tile whatever is in it, and of its 128 x 128 pairs if it is full.
TILE_CYCLES = {64: 66.0, 128: 183.0, 192: 514.0, 256: 911.0}
PAIR_CYCLES = {64: 1899.0, 128: 2790.0, 192: 2811.0, 256: 4172.0}
EIGHT_BIT_TILE, EIGHT_BIT_PAIRS = 6.8, 0.83  # times that with operands of 8 bits, whose values are turned on chip
BLOCK_NS, BLOCK_DEPTH_NS = 2021.0, 6.0  # a block, and a unit of its depth
WINDOW_NS = 1359.0  # what a block takes longer if its first tiles are masked, too
SEARCH_NS = 2482.0  # what a block takes to find its sequence among as many as the scheduler can search
SEARCHED = 992  # the most sequences whose blocks a kernel counts ahead; beyond, no block is searched for
TAIL = 0.665  # share of what the longest row takes longer than the mean that is waited for
BESIDE = 1.093  # exponent that joins work and memory: hardly anything overlaps
STREAM = 1.042  # times the streaming bandwidth: keys and values of a layer are in no cache
ROUNDED = 1.1  # the numbers of a signature are rounded: what two of them may differ by, and more
MOST_PARTS = 32  # into which keys are divided
START_NS = 3000.0  # the kernel starts: tensor maps, and its first wait for the scheduler
PREPARE_NS = 1070.0  # the kernel that counts blocks
JOIN_NS, JOINED = 850.0, 2.26  # the kernel that joins parts, and how often it reads them over the cache's bandwidth
PRODUCT_CYCLES = 16.0  # of a full tile's products per unit of depth, at the peak rate of an H200
PEAK_CLOCK = 0.924  # the datasheet's peak is for a lower clock


@dataclass(frozen=True, slots=True)
class Cached:
    """An attention to a cache, in which heads that share keys are joined."""

    heads: int
    key_heads: int
    depth: int
    dtype: str
    sequences: int
    queries: int
    keys: int
    """The keys of all sequences; behind a window only those that are seen."""
    rows: int
    tiles: float
    longest: float
    pairs: float
    """The tiles, the longest row and the pairs count as in a `sequences` signature: for all heads that share keys, but
    pairs for one head.
    """
    window: bool


def kernel(gpu: Gpu, what: Kernel, name: KernelName) -> Estimate | None:
    """The estimate of one of the kernels; None for others, and where the lengths or the op's sizes are not known."""
    if name.base == PREPARE:
        return both(gpu, lambda _: PREPARE_NS, model="attention to a cache")
    problem = problem_of(what, name) if isinstance(what, Sequences) else None
    if problem is None:
        return None
    if COMBINE in name.text:
        return both(gpu, lambda machine: joined_ns(machine, problem), model="attention to a cache")
    return both(
        gpu,
        lambda machine: attention_ns(machine, problem),
        flops(problem),
        model="attention to a cache",
        nbytes=nbytes_of(problem),
        peak="f8" if problem.dtype.startswith("f8") else "bf16",
    )


def problem_of(what: Sequences, name: KernelName) -> Cached | None:
    shapes = shapes_of(what.sizes)
    if shapes is None or (KERNEL not in name.text and COMBINE not in name.text):
        return None
    q, k = shapes
    text = name.text
    dtype = "f8e4m3" if "float_e4m3" in text else "bf16"
    window = what.longest * TILE < what.keys / max(what.sequences, 1) / ROUNDED - TILE
    seen = min(what.keys, what.pairs) if what.queries == what.sequences else what.keys
    return Cached(
        q[-2],
        k[-2],
        q[-1],
        dtype,
        what.sequences,
        what.queries,
        seen,
        what.rows,
        what.tiles,
        what.longest,
        what.pairs,
        window,
    )


def shapes_of(sizes: tuple[Shape, ...]) -> tuple[Shape, Shape] | None:
    """The queries' shape, which ends with heads and depth, and the keys' one: of the cache's pages, or packed."""
    shapes = [shape for shape in sizes if len(shape) in (3, 4)]
    if len(shapes) < 3 or shapes[1] != shapes[2][:-1] + shapes[1][-1:]:
        return None
    q, k = shapes[:2]
    return (q, k) if k[-2] > 0 and q[-2] % k[-2] == 0 else None


def parts(machine: Machine, what: Cached) -> int:
    """Into how many parts the keys of a block are divided."""
    if what.window or not what.rows:
        return 1
    return max(min(machine.gpu.sm_count // (what.key_heads * what.rows), int(what.longest), MOST_PARTS), 1)


def flops(what: Cached) -> float:
    return 4.0 * what.depth * what.heads * what.pairs


def nbytes_of(what: Cached) -> float:
    item = dtype_nbytes(what.dtype)
    return what.depth * (2 * item * what.key_heads * what.keys + (item + 2) * what.heads * what.queries)


def attention_ns(machine: Machine, what: Cached) -> float:
    ghz = machine.gpu.sm_clock_khz * 1e-6
    wide = min(64 * ceil(what.depth / 64), max(TILE_CYCLES))
    per_tile, per_pairs = TILE_CYCLES[wide] / ghz, (PAIR_CYCLES[wide] + _slower_products(machine, wide)) / ghz
    if what.dtype.startswith("f8"):
        per_tile, per_pairs = per_tile * EIGHT_BIT_TILE, per_pairs * EIGHT_BIT_PAIRS
    together = what.heads / what.key_heads
    full = what.pairs * together / TILE**2
    divided = parts(machine, what)
    blocks = what.key_heads * max(what.rows, 1) * divided
    of_row = per_tile + per_pairs * (1.0 if what.queries > what.sequences else min(together / TILE, 1.0))
    work = what.key_heads * (what.tiles * per_tile + full * per_pairs) / machine.sms
    longest, mean = what.longest / divided, what.tiles / max(what.rows, 1) / divided
    loop = max(work, longest * of_row) + TAIL * max(longest - mean, 0.0) * of_row
    block = BLOCK_NS + BLOCK_DEPTH_NS * wide + (WINDOW_NS if what.window else 0.0)
    if what.sequences <= SEARCHED:
        block += SEARCH_NS * what.sequences / SEARCHED
    begins = block * max(blocks / machine.sms, 1.0)
    streamed = nbytes_of(what) / (machine.memory_gb_per_s * STREAM)
    return START_NS + overlapped(loop + begins, streamed, exponent=BESIDE)


def joined_ns(machine: Machine, what: Cached) -> float:
    rows = what.heads * what.queries * what.depth
    return JOIN_NS + JOINED * 4.0 * rows * parts(machine, what) / machine.l2_gb_per_s


def _slower_products(machine: Machine, wide: int) -> float:
    """The cycles that a full tile's products take longer than on an H200."""
    gpu = machine.gpu
    per_cycle = gpu.peak_flops("bf16") / gpu.sm_count / (gpu.sm_clock_khz * 1e3)
    return PRODUCT_CYCLES * wide * (TENSOR_CYCLES * PEAK_CLOCK / per_cycle - 1.0)
