"""Models fused attention: blocks of queries pass over blocks of keys.

    time = pairs x cycles of a pair / SMs + blocks / SMs x time of a block + imbalance

Pairs are counted in whole tiles. A pair's cycles are a part for the softmax and a part that grows with the depth, for
the products. A block's time is its prologue and epilogue. With a causal mask blocks differ in length: some SMs wait
for those that took the longest one last.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from math import ceil, prod
from typing import NamedTuple

from profiles.descriptions.gpu import Gpu
from profiles.kernel_names.kernel_name import KernelName
from profiles.models.machine import Estimate, Machine, both, overlapped
from profiles.models.power import attention_in_a_job
from profiles.signature import Kernel, Packed, Sdpa, Sequences, Shape, Windowed, dtype_nbytes

TILE = 128  # queries and keys
HALF_TILE = 64  # queries that a block of the backward pass takes at a time
# Sequences of so many tiles at most, and how the loops and starts of their blocks join: 96 cases of 16 to 256 tokens,
# laboratory/rows/short-attention-h200.jsonl.
SHORT_TILES, SHORT_ADD_UP = 2, 1.9
FEW_QUERIES = 8  # queries up to which it is decoding: blocks divide the keys, and time is that of reading them
DEEPEST = 128  # beyond, tiles do not fit the register file
ODD_DEPTH_SLOWER = 1.03  # cudnn: depths between 64 and 128 are multiplied as 128, with masks
TENSOR_CYCLES = 4096.0  # floating-point operations of an H200's SM per cycle, for which the figures below hold


@dataclass(frozen=True, slots=True)
class Figures:
    """The figures of a kind of kernel: SM cycles per pair of a query and a key, and nanoseconds of a block, on an
    H200.
    """

    softmax: float
    per_depth: float
    """The cycles of the products per unit of depth."""
    block_ns: float
    imbalance: float
    """The share of the longest block's time that is waited for at the end, with a causal mask."""
    dropout: float
    mask: float
    deep: float
    """The factor for depths above DEEPEST; for cudnn DEEP and LATENT have it."""
    masked: float = 0.0
    """The additional cycles of a pair in a tile that is masked, per unit of depth: with a causal mask one tile in each
    row, with a window all.
    """
    window_ns: float = 0.0
    """The additional time of a block with a window."""


FIGURES = {
    ("cudnn", "fwd"): Figures(0.0703, 0.00084, 1960.0, 0.73, 0.2225, 0.154, 1.0, 0.0, 3200.0),
    ("cudnn", "bwd"): Figures(0.211, 0.00225, 4390.0, 0.566, 0.16, 0.247, 1.0, 0.0, 6050.0),
    # PyTorch's bundled FlashAttention 2 and memory-efficient kernels, for tensor cores before Hopper's.
    ("flash", "fwd"): Figures(0.089, 0.00216, 1300.0, 1.0, 0.09, 0.2, 1.0, 12.0, 3500.0),
    ("flash", "bwd"): Figures(0.125, 0.00734, 3200.0, 0.5, 0.13, 0.2, 1.2),
    ("efficient", "fwd"): Figures(0.306, 0.00347, 1250.0, 0.5, 0.59, 0.23, 1.3),
    ("efficient", "bwd"): Figures(0.73, 0.0128, 2000.0, 0.5, 0.84, 0.165, 2.0),
}
# cuDNN with a mask that is given, at depths of more than 64.
WIDE_MASKED = {
    direction: replace(FIGURES["cudnn", direction], mask=mask) for direction, mask in (("fwd", 0.183), ("bwd", 0.63))
}
# cuDNN at depths above DEEPEST.
DEEP = {
    "fwd": replace(FIGURES["cudnn", "fwd"], deep=1.18, imbalance=0.623, mask=0.775),
    "bwd": replace(FIGURES["cudnn", "bwd"], deep=2.05, imbalance=0.093, mask=1.48),
}
# cuDNN where values are less deep than keys, as in latent attention.
LATENT = {
    "fwd": replace(FIGURES["cudnn", "fwd"], deep=0.952, imbalance=0.817, mask=0.2),
    "bwd": replace(FIGURES["cudnn", "bwd"], deep=2.0, mask=0.592),
}
LATENT_CAUSAL = replace(FIGURES["cudnn", "bwd"], deep=1.06)  # the causal backward pass has a kernel of its own
EIGHT_BITS = {"fwd": 0.625, "bwd": 0.9}  # operands of 8 bits, beside the time of those of 16 with half the bytes
FULL_PRECISION = {"fwd": 3.6, "bwd": 2.9}  # f32 operands
WIDE_FULL_PRECISION = 1.22  # backward by the efficient kernels: depths of more than 64 in f32 take smaller tiles
SETUP_NS = 2900.0  # cudnn, packed sequences: one block writes descriptors of the sequences' tiles
COMBINE, MOST_PARTS = "flash_fwd_splitkv_combine_kernel", 7  # the keys are divided into 2**7 parts at most
HALF = 0.45  # the kernel that sums dO x O before the backward pass: its share of the streaming bandwidth
CONVERT = 0.8  # the kernel that converts dQ after it: likewise
PACKED_HALF = 0.25  # as HALF, where each sequence has its own length: 0.18 to 0.35
BOTH_SIDES = 1.14  # cudnn, backward, with a window on both sides: no tile is left out, and all are masked


class Extent(NamedTuple):
    """The work of one head for all sequences, as in a `sequences` signature."""

    sequences: int
    queries: int
    keys: int
    rows: int
    """The number of tiles of queries: each sequence has its own."""
    columns: int
    """The number of tiles of keys."""
    tiles: float
    """The number of tiles of pairs in which a query sees a key."""
    longest: float
    """The most of these tiles in one row."""
    pairs: float
    """The number of pairs of a query and a key that it sees."""


@dataclass(frozen=True, slots=True)
class Problem:
    direction: str
    heads: int
    key_heads: int
    depth: int
    value_depth: int
    dtype: str
    dropout: bool
    mask: bool
    causal: bool
    window: bool
    extent: Extent
    backend: str = "cudnn"
    packed: bool = False


def sdpa(gpu: Gpu, what: Sdpa) -> Estimate:
    """The estimate of cuDNN's call with all its helper kernels (row sums, conversion of dQ)."""
    batch, heads, queries, depth = what.q[-4:]
    slower = 1.0
    if isinstance(what, Packed):
        extent = Extent(
            what.sequences, what.queries, what.keys, what.rows, what.columns, what.tiles, what.longest, what.pairs
        )
    elif isinstance(what, Windowed) and what.direction == "bwd" and what.right > 0:
        extent, slower = equal(batch, queries, what.k[-2], False), BOTH_SIDES
    elif isinstance(what, Windowed):
        extent = banded(batch, queries, what.k[-2], what.left, what.right)
    else:
        extent = equal(batch, queries, what.k[-2], what.causal, from_start=True)
    mask = _masked(what.direction, what.sizes)
    problem = Problem(
        what.direction,
        heads,
        what.k[-3],
        depth,
        what.v[-1],
        what.dtype,
        what.dropout,
        mask,
        what.causal,
        isinstance(what, Windowed) or (isinstance(what, Packed) and what.window),
        extent,
        packed=isinstance(what, Packed),
    )
    backward = what.direction == "bwd"

    def ns(machine: Machine) -> float:
        whole = slower * attention_ns(machine, problem) + (_around_ns(machine, problem) if backward else 0.0)
        whole += SETUP_NS if problem.packed else 0.0
        return whole * (EIGHT_BITS[what.direction] if peak_of(what.dtype) == "f8" else 1.0)

    return both(
        gpu,
        ns,
        flops(problem),
        model=f"attention of cuDNN, {what.direction}",
        kernels=3 if backward else 1,
        peak=peak_of(what.dtype),
    )


def peak_of(dtype: str) -> str:
    """The dtype whose peak bounds the products."""
    return "tf32" if dtype in ("f32", "tf32") else "f8" if dtype.startswith("f8") else "bf16"


def named(what: Kernel, name: KernelName) -> Problem | None:
    """The problem of PyTorch's own kernels: q, k, v lead the op's sizes, a causal mask is in FlashAttention's template.
    The memory-efficient kernels do not say whether the mask is causal; it is assumed not to be, unless pairs are
    counted.
    """
    if name.base == COMBINE:
        return None
    if found := re.match(r"flash_(fwd|bwd_dq_dk_dv_loop)_\w*kernel", name.base):
        direction, backend = ("fwd" if found[1] == "fwd" else "bwd"), "flash"
    elif found := re.match(r"fmha_cutlass(F|B)", name.base):
        direction, backend = ("fwd" if found[1] == "F" else "bwd"), "efficient"
    else:
        return None
    packed = isinstance(what, Sequences) and not any(len(shape) == 4 for shape in what.sizes)
    shapes = [shape for shape in what.sizes if len(shape) == (3 if packed else 4)]
    if direction == "bwd" and len(shapes) >= 4:
        shapes = shapes[1:]  # the gradient comes first
    paged = isinstance(what, Sequences) and len(shapes) < 3 and direction == "fwd"
    if paged:  # keys and values lie in pages: (pages, tokens of a page, heads, depth)
        shapes = [shape for shape in what.sizes if len(shape) in (3, 4)]
    if len(shapes) < 3:
        return None
    q, k, v = shapes[:3]
    if paged:
        q, k, v = ((1, one[-2], prod(one[:-2]), one[-1]) for one in (q, k, v))
    elif packed:  # (queries of all sequences, heads, depth)
        q, k, v = ((1, one[1], one[0], one[2]) for one in (q, k, v))
    # Ops that name the kernel take (batch, heads, length, depth), the raw ones (batch, length, heads, depth).
    elif "scaled_dot_product" not in what.op:
        q, k, v = ((one[0], one[2], one[1], one[3]) for one in (q, k, v))
    flags = [one == "true" for one in name.arguments[1:] if one in ("true", "false")]
    if "splitkv" in name.base:
        flags = [False, *flags]  # it has no dropout
    dropout, causal = (flags[0], flags[1]) if backend == "flash" and len(flags) > 1 else ("dropout" in name.base, False)
    dtype = "f32" if "_f32_" in name.base else "f16" if "half_t" in name.text or "_f16_" in name.base else "bf16"
    mask = backend == "efficient" and len(what.sizes) > 4 and len(what.sizes[3 if direction == "fwd" else 4]) == 4
    if isinstance(what, Sequences):
        extent = Extent(
            what.sequences, what.queries, what.keys, what.rows, what.columns, what.tiles, what.longest, what.pairs
        )
    else:
        extent = equal(q[0], q[2], k[2], causal)
    if "splitkv" in name.base and (what.grid[2] != q[1] or extent.sequences == 1):
        extent = extent._replace(longest=extent.longest / what.grid[1])
    window = len(flags) > 2 and flags[2] and backend == "flash"
    return Problem(direction, q[1], k[1], q[3], v[3], dtype, dropout, mask, causal, window, extent, backend)


def equal(batch: int, queries: int, keys: int, causal: bool, *, from_start: bool = False) -> Extent:
    """The extent of sequences that are equally long. A causal mask aligns the ends of both sides, or their starts."""
    if causal and from_start and queries > 1:
        keys = min(keys, queries)  # no query sees later ones
    rows, columns = ceil(queries / TILE), ceil(keys / TILE)
    whole = float(queries) * keys
    if not causal or queries <= 1:
        tiles, pairs = float(rows * columns), whole
    else:
        tiles = sum(min(max(columns - rows + row + 1, 1), columns) for row in range(rows)) if rows < 4096 else 0.0
        tiles = tiles or rows * columns / 2
        pairs = queries * (keys - queries / 2 if keys >= queries else keys**2 / (2.0 * queries))
    return Extent(
        batch, batch * queries, batch * keys, batch * rows, batch * columns, batch * tiles, columns, batch * pairs
    )


def banded(batch: int, queries: int, keys: int, left: int, right: int) -> Extent:
    """Sequences that are equally long, whose query `i` sees the keys behind `i - left` up to `i + right`."""
    rows, columns = ceil(queries / TILE), ceil(keys / TILE)
    tiles, longest = 0, 0
    for row in range(rows):
        first = max(row * TILE - left + 1, 0) // TILE
        last = min((min((row + 1) * TILE, queries) - 1 + right) // TILE, columns - 1)
        tiles += max(last - first + 1, 0)
        longest = max(longest, last - first + 1)
    before, after = min(left, keys), min(right, keys)
    # Of the queries at both ends the band reaches beyond the keys.
    pairs = queries * (before + after) - (before * (before - 1) + after * (after + 1)) / 2
    pairs = min(max(pairs, 1.0), float(queries) * keys)
    return Extent(
        batch,
        batch * queries,
        batch * keys,
        batch * rows,
        batch * columns,
        batch * float(tiles),
        longest,
        batch * pairs,
    )


def combined_ns(machine: Machine, what: Kernel, name: KernelName) -> float:
    """The time of joining the results in f32 of parts of the keys that blocks of their own have computed."""
    numbers = [int(one) for one in name.arguments[1:] if one.isdigit()]
    parts = 2 ** min(numbers[1], MOST_PARTS) if len(numbers) > 1 else 2
    rows = max((prod(shape) for shape in what.sizes if len(shape) in (3, 4)), default=0)
    return machine.memory_ns(rows * (4.0 * parts + 2)) / CONVERT


def helper_ns(machine: Machine, what: Kernel, name: KernelName) -> float:
    """The time of FlashAttention's kernels before and after the backward pass: two inputs, or one of f32 and one
    output.
    """
    rows = max((prod(shape) for shape in what.sizes if len(shape) in (3, 4)), default=0)
    nbytes = 4.0 * rows if "dot_do_o" in name.base else 6.0 * rows
    return machine.memory_ns(nbytes) / (HALF if "dot_do_o" in name.base else CONVERT)


def flops(what: Problem) -> float:
    """The useful operations: half of the square if causal; the backward pass's recomputation of the scores does not
    count, because it does not in MFU.
    """
    products = {"fwd": 2, "bwd": 4}[what.direction]
    return products * (what.depth + what.value_depth) * what.heads * what.extent.pairs


def _figures(what: Problem, wide: int) -> Figures:
    if what.backend != "cudnn" or wide <= 64:
        return FIGURES[what.backend, what.direction]
    if wide <= DEEPEST:
        return WIDE_MASKED[what.direction]
    if what.depth == what.value_depth:
        return DEEP[what.direction]
    return LATENT_CAUSAL if what.causal and what.direction == "bwd" else LATENT[what.direction]


def _share_of_tiles(length: float) -> float:
    """The share of whole tiles that half tiles need for this many queries or keys."""
    return ceil(length / HALF_TILE) / (2 * ceil(length / TILE))


def attention_ns(machine: Machine, what: Problem) -> float:
    mhz = machine.gpu.sm_clock_khz * 1e-6
    depth = (what.depth + what.value_depth) / 2
    # The efficient kernels have tiles of 64 and 128 for it.
    multiple = 64 if what.backend == "cudnn" or (what.backend == "efficient" and depth > 64) else 32
    wide = multiple * ceil(depth / multiple)
    figures = _figures(what, wide)
    cycles = figures.softmax + figures.per_depth * wide * _tensor_scale(machine, what.backend)
    if what.backend == "cudnn":
        cycles *= attention_in_a_job(wide)
    if wide > DEEPEST:
        cycles *= figures.deep
    elif what.backend == "cudnn" and wide > 64 and depth != wide:
        cycles *= ODD_DEPTH_SLOWER
    cycles += (figures.dropout if what.dropout else 0.0) + (figures.mask if what.mask else 0.0)
    if what.dtype in ("f32", "tf32"):
        cycles *= FULL_PRECISION[what.direction]
        if what.backend == "efficient" and what.direction == "bwd" and wide > 64:
            cycles *= WIDE_FULL_PRECISION
    extent, area = what.extent, float(TILE * TILE)
    blocks = what.heads * (extent.rows if what.direction == "fwd" else extent.columns)
    # Backward a block has keys and goes through the queries.
    through = 1.0 if what.direction == "fwd" else extent.rows / max(extent.columns, 1)
    pairs, longest = what.heads * extent.tiles * area, extent.longest * area * through
    short = what.backend == "cudnn" and not what.packed and not what.window and extent.longest <= SHORT_TILES
    if short and what.direction == "bwd":
        # A block goes through the queries by half tiles, which shows where there are few.
        share = _share_of_tiles(extent.queries / extent.sequences)
        pairs, longest = share * pairs, share * longest
    if what.backend == "efficient":  # its tiles are half as long, which shows where a sequence is shorter than one
        of_queries, of_keys = (_share_of_tiles(n / extent.sequences) for n in (extent.queries, extent.keys))
        pairs, longest = of_queries * of_keys * pairs, of_queries * of_keys * longest
    masked = extent.tiles if what.window else extent.rows if what.causal else 0.0
    loop = max(pairs / machine.sms, longest) * cycles / mhz
    # With a causal mask the longest block is about twice as long as the average. Without one there is more to do.
    tail = 2 * figures.imbalance * max(longest - pairs / max(blocks, 1), 0.0) * cycles / mhz
    tail = min(tail, max(blocks * longest / machine.sms, longest) * cycles / mhz - loop)
    tail += what.heads * masked * area / machine.sms * figures.masked / wide / mhz
    item = dtype_nbytes(what.dtype)
    reads = 2 if what.direction == "fwd" else 4
    nbytes = item * (
        what.heads * extent.queries * what.depth * reads
        + what.key_heads * extent.keys * (what.depth + what.value_depth) * (reads / 2)
    )
    if extent.queries <= FEW_QUERIES * extent.sequences and what.direction == "fwd" and not short:
        return figures.block_ns + machine.memory_ns(nbytes)
    start = max(blocks / machine.sms, 1.0) * (figures.block_ns + (figures.window_ns if what.window else 0.0))
    if short:  # a block begins while another of its SM computes
        return overlapped(loop + tail, start, machine.memory_ns(nbytes), exponent=SHORT_ADD_UP)
    return overlapped(loop + tail, machine.memory_ns(nbytes)) + start


def _around_ns(machine: Machine, what: Problem) -> float:
    """The time of the kernels around the backward pass: row sums of dO x O before, dQ gathered in f32 and converted
    after: two kernels far from streaming speed.
    """
    item = dtype_nbytes(what.dtype)
    rows = what.heads * what.extent.queries * what.depth
    sums = machine.memory_ns(rows * 2 * item) / (PACKED_HALF if what.packed else HALF)
    converted = machine.memory_ns(rows * (4 + item)) / CONVERT
    floor = machine.gpu.achieved.kernel_floor_ns
    if not what.packed:
        return sums + converted + 2 * floor
    # Before, a kernel writes where the tiles begin; after it, the keys' gradients of heads that share them add up.
    shared = what.heads > what.key_heads
    columns = what.extent.keys * (what.depth + what.value_depth) * (what.heads + what.key_heads)
    added = machine.memory_ns(columns * item) / CONVERT + 2 * floor if shared else 0.0
    return sums + converted + added + 3 * floor


def _masked(direction: str, sizes: tuple[Shape, ...]) -> bool:
    """Returns true if there is a bias: it comes after q, k and v, in the backward pass after the outputs and the
    seeds.
    """
    return any(len(shape) == 4 for shape in (sizes[3:] if direction == "fwd" else sizes[6:]))


def _tensor_scale(machine: Machine, backend: str) -> float:
    """The time of the products on this GPU over that on an H200, per cycle and SM."""
    per_cycle = machine.gpu.peak_flops("bf16") / machine.gpu.sm_count / (machine.gpu.sm_clock_khz * 1e3)
    reference = TENSOR_CYCLES * 0.924  # the datasheet's peak is for a lower clock
    if backend != "cudnn" and machine.gpu.products_by_warp_groups:
        return 1.0
    return reference * (1.0 if backend == "cudnn" else 0.6) / per_cycle
