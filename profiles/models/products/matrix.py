"""Models cuBLAS's matrix products, and PyTorch's grouped ones."""

from __future__ import annotations

import re
from dataclasses import replace
from math import ceil, gcd
from typing import NamedTuple

from profiles.descriptions.gpu import Gpu
from profiles.kernel_names.kernel_name import KernelName
from profiles.models.machine import Estimate, Machine, both
from profiles.models.products.engines import ALIGNMENT_NBYTES, engine_of, math_dtype
from profiles.models.products.tiles import (
    BATCHED,
    COLD,
    LOOSE,
    NEVER_NS,
    TENSOR_8,
    TENSOR_8_EXACT,
    TENSOR_16,
    TENSOR_TF32,
    TURNED_TF32,
    Engine,
    product,
)
from profiles.signature import Gemm, Grouped, Kernel, dtype_nbytes

TURNED = (1.0, 1.17, 1.0)  # time of a tf32 product by how many of its operands have k innermost; none: TURNED_TF32
ALIKE = (1.0, 1.0, 1.0)
VECTOR_START_NS = 900.0
VECTOR_STREAM = 0.72  # a matrix times a vector has a kernel of its own: its share of the streaming bandwidth
GROUPED_RATE = 0.985  # CUTLASS's grouped kernel next to cuBLAS's best
GROUPED_TILE_NS = 1_120.0
GROUPED_START_NS = 4_900.0
GROUPED_STREAM = 0.9
MIXED = {"f8e4m3", "f8e5m2"}  # the types of a product with a gradient, which takes no fast accumulation
BLOCKS, VECTORS = 1.19, 1.52  # a scale for 128 x 128 numbers of one operand, and for 128 of a row of both


def gemm(gpu: Gpu, what: Gemm) -> Estimate:
    a, b, c = (dtype_nbytes(one) for one in (what.a, what.b, what.c))
    engine, dtype = engine_of_product(what)
    loose = engine.name, dtype == "tf32"
    small = BATCHED.get(engine.name) if what.batch > 1 and dtype != "tf32" else None
    engine, turned_by = LOOSE.get(loose, (engine, TURNED if engine is TENSOR_TF32 else ALIKE))
    if small is not None:
        engine = replace(engine, split_ns=NEVER_NS)
    if engine is TENSOR_8 and {what.a, what.b} == MIXED:
        engine = TENSOR_8_EXACT
    nbytes = what.batch * (what.m * what.k * a + what.k * what.n * b + what.m * what.n * c)
    inner = (what.transa != "n") + (what.transb == "n")  # operands that have k innermost
    if engine is TENSOR_TF32 and not inner:
        engine = TURNED_TF32
    parts = 4 if what.a.startswith("c") else 1  # a complex product is four real ones

    whole = Machine.alone(gpu)
    alone, kernels = product(whole, engine, dtype, what.m, what.n, what.k, what.batch, nbytes=nbytes)

    def ns(machine: Machine) -> float:
        tiled = alone
        if machine != whole:
            tiled, _ = product(machine, engine, dtype, what.m, what.n, what.k, what.batch, nbytes=nbytes)
        tiled *= parts * slower
        if small is not None:
            together, _ = product(machine, small, dtype, what.m, what.n, what.k, what.batch, nbytes=nbytes)
            tiled = min(tiled, together)
        if min(what.m, what.n) == 1 and dtype in ("f32", "tf32", "f64"):
            return min(tiled, VECTOR_START_NS + machine.memory_ns(nbytes, cold=COLD) / VECTOR_STREAM)
        return tiled

    # Tensor cores take 32-bit operands with k innermost; others are turned round in shared memory. Kernels without
    # asynchronous copies are slower the other way round.
    slower = turned_by[inner] * _scaled_by(what)
    flops = parts * 2.0 * what.m * what.n * what.k * what.batch
    model = "gemm, unaligned" if loose in LOOSE else f"gemm {dtype}"
    return both(gpu, ns, flops, model=model, kernels=parts * kernels, nbytes=nbytes, peak=dtype)


def _scaled_by(what: Gemm) -> float:
    """The factor on products of 8 bits with scales of many small blocks, and of two types."""
    flags = what.epilogue.split("_")
    if "avec128" in flags and "bvec128" in flags:
        return VECTORS
    return BLOCKS if any(one.endswith("128") for one in flags) else 1.0


def engine_of_product(what: Gemm) -> tuple[Engine, str]:
    """The engine by `engine_of`, and how the rows of all three matrices are aligned."""
    # Column-major: A is stored m long, or k long if transposed.
    long_a, long_b = (what.m if what.transa == "n" else what.k), (what.k if what.transb == "n" else what.n)
    matrices = (long_a, what.a), (long_b, what.b), (what.m, what.c)
    rows = [int(long * dtype_nbytes(dtype)) for long, dtype in matrices if long > 1]
    return engine_of(what.a, what.compute, row_nbytes=gcd(*rows) if rows else ALIGNMENT_NBYTES)


def scaled(gpu: Gpu, what: Kernel | Grouped) -> Estimate | None:
    """The estimate of PyTorch's own kernel for products of 8-bit operands with a scale for each row (aten::_scaled_mm),
    by the op's sizes, as cuBLAS would compute it.
    """
    shapes = [shape for shape in what.sizes if len(shape) == 2][:2]
    if len(shapes) < 2 or shapes[0][1] != shapes[1][0]:
        return None
    (m, k), n = shapes[0], shapes[1][1]
    dtypes = ("f8e4m3", "f8e4m3", "bf16", "f32")
    return gemm(gpu, Gemm("cublasLtMatmul", "t", "n", n, m, k, 1, *dtypes, "default", what.op, what.sizes))


def grouped(gpu: Gpu, what: Kernel | Grouped, name: KernelName) -> Estimate | None:
    """The estimate of PyTorch's grouped products (aten::_grouped_mm), by the op's sizes and those of its groups. If
    only the number of groups is known, they are assumed to be equal.

    Two dims by three: rows of all groups by one matrix each. Three by two: the same with columns. Two by two: sums over
    each group's columns, one matrix each. Three by three: a batch. Tiles are dealt to SMs group by group; none belongs
    to two groups.
    """
    shapes = [shape for shape in what.sizes if len(shape) in (2, 3)][:2]
    if len(shapes) < 2:
        return None
    x, w = shapes
    offsets = next((shape[0] for shape in what.sizes if len(shape) == 1), 1)
    count = x[0] if len(x) == 3 else w[0] if len(w) == 3 else max(offsets, 1)
    m, k, n = (x[1] if len(x) == 3 else x[0]), x[-1], w[-1]
    varying = {(2, 3): m, (3, 2): n, (2, 2): k}.get((len(x), len(w)), 0)
    groups = what if isinstance(what, Grouped) and varying else _equal_groups(count, varying)
    narrow = "float_e" in name.text
    engine, dtype, item = (TENSOR_8, "f8", 1.0) if narrow else (TENSOR_16, "bf16", 2.0)
    high, wide = _tile_of(name.text)
    tiles: float
    if (len(x), len(w)) == (2, 3):
        tiles, depth, longest = _tiles(groups, high) * ceil(n / wide), float(k), float(k)
        flops, nbytes = groups.rows * k * n, item * (groups.rows + groups.used * n) * k + 2.0 * groups.rows * n
    elif (len(x), len(w)) == (3, 2):
        tiles, depth, longest = _tiles(groups, wide) * ceil(m / high), float(k), float(k)
        flops, nbytes = groups.rows * k * m, item * (groups.rows + groups.used * m) * k + 2.0 * groups.rows * m
    elif varying:
        tiles, depth, longest = count * ceil(m / high) * ceil(n / wide), groups.rows / count, float(groups.longest)
        flops, nbytes = groups.rows * m * n, item * groups.rows * (m + n) + 2.0 * count * m * n
    else:
        tiles, depth, longest = count * ceil(m / high) * ceil(n / wide), float(k), float(k)
        flops, nbytes = count * m * k * n, count * (item * (m * k + k * n) + 2.0 * m * n)

    def ns(machine: Machine) -> float:
        rate = machine.tensor_flops_per_ns(dtype) * engine.rate * GROUPED_RATE
        step = 2.0 * high * wide * (1 + engine.feed * (1 / high + 1 / wide)) / rate
        fixed = GROUPED_TILE_NS + engine.element_ns * high * wide
        memory = machine.memory_ns(nbytes) / GROUPED_STREAM
        # An SM's tiles are of the mean depth, but one has the longest group's.
        loop = max(ceil(tiles / machine.sms) * (depth * step + fixed), longest * step + fixed)
        return GROUPED_START_NS + float((loop**3 + memory**3) ** (1 / 3))

    return both(gpu, ns, 2.0 * flops, model="grouped product", nbytes=nbytes, peak=dtype)


class _Groups(NamedTuple):
    """The figures of groups, named as in the signature."""

    groups: int
    used: int
    rows: int
    longest: int
    tiles64: int
    tiles128: int


def _equal_groups(count: int, rows: int) -> _Groups:
    each = ceil(rows / max(count, 1))
    return _Groups(count, count, rows, each, count * ceil(each / 64), count * ceil(each / 128))


def _tiles(groups: Grouped | _Groups, high: int) -> int:
    """The number of tiles of so many rows."""
    if high <= 64:
        return groups.tiles64
    if high <= 128:
        return groups.tiles128
    # Rounding up adds half a tile to a group on average, and a group has at least one.
    return max(groups.used, ceil(groups.rows / high), min(groups.tiles128, ceil(groups.rows / high + groups.used / 2)))


def _tile_of(name: str) -> tuple[int, int]:
    """The tile of CUTLASS's kernels, which is in their names as a tuple of constants: rows, columns and depth."""
    readable = r"tuple<cute::C<(\d+)>, cute::C<(\d+)>, cute::C<(\d+)> ?>, cutlass::(?:bfloat16|half|float_e)"
    mangled = r"ILi(\d+)EEEN\w*ILi(\d+)EEEN\w*ILi(\d+)EEEEEENS_\d+(?:bfloat16_t|half_t|float_e)"
    found = re.search(readable, name) or re.search(mangled, name)
    return (int(found[1]), int(found[2])) if found else (128, 256)


__all__ = ["engine_of_product", "gemm", "grouped", "math_dtype", "scaled"]
