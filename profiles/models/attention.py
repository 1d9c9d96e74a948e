"""Fused attention: per query and key two (forward) or five (backward) products of head depth, and the softmax between
them.

cycles per pair and SM = softmax + flops / tensor rate, the two not overlapped: that is what kernels of depths 64 and
128 show. The softmax part is the exponential (16 per cycle) with its scaling and maximum; dropout adds a random
number per pair.
"""

from __future__ import annotations

from dataclasses import dataclass

from profiles.descriptions.gpu import Gpu
from profiles.models.machine import Estimate, Machine, both
from profiles.signature import Sdpa, dtype_nbytes

# SM cycles per pair beside the products, from cuDNN 9's kernels on an H200.
SOFTMAX = {"fwd": 0.095, "bwd": 0.275}
DROPOUT = {"fwd": 0.32, "bwd": 0.25}
PRODUCT_RATE = 0.84  # of a large GEMM's
PRODUCTS = {"fwd": 2, "bwd": 5}
TILE = 64  # queries; on the diagonal a causal kernel computes whole tiles
# Forward and backward time over cuDNN's: PyTorch's bundled FlashAttention 2 has no wgmma, the memory-efficient
# kernels less still.
SLOWER = {"cudnn": 1.0, "flash": 1.35, "efficient": 2.2}


@dataclass(frozen=True, slots=True)
class Problem:
    direction: str
    batch: int
    heads: int
    queries: int
    keys: int
    depth: int
    value_depth: int
    dtype: str
    causal: bool
    dropout: bool
    backend: str = "cudnn"


def sdpa(gpu: Gpu, what: Sdpa) -> Estimate:
    """The fused call with all its helper kernels (row sums, conversion of dQ)."""
    batch, heads, queries, depth = what.q[-4:]
    keys, value_depth = what.k[-2], what.v[-1]
    problem = Problem(
        what.direction, batch, heads, queries, keys, depth, value_depth, what.dtype, what.causal, what.dropout
    )
    return both(gpu, lambda machine: attention_ns(machine, problem), flops(problem))


def flops(what: Problem) -> float:
    """Useful operations: half of the square if causal, the backward's recomputation of the scores not counted for
    MFU's sake.
    """
    products = {"fwd": 2, "bwd": 4}[what.direction]
    return products * (what.depth + what.value_depth) * _pairs(what, 0)


def attention_ns(machine: Machine, what: Problem) -> float:
    tensor = machine.tensor_flops_per_ns(what.dtype if what.dtype in ("f16", "bf16") else "tf32")
    tensor /= machine.gpu.sm_clock_khz * 1e-6  # per cycle
    products = PRODUCTS[what.direction] * (what.depth + what.value_depth) / (tensor * PRODUCT_RATE)
    cycles = products + SOFTMAX[what.direction] + (DROPOUT[what.direction] if what.dropout else 0.0)
    # Few sequences or heads leave SMs idle: each block has a tile of 128 queries of one head.
    blocks = what.batch * what.heads * -(-what.queries // 128)
    idle = max(1.0, machine.sms / max(blocks, 1))
    ns = _pairs(what, TILE) * cycles / machine.sms * idle / (machine.gpu.sm_clock_khz * 1e-6)
    ns *= SLOWER[what.backend]
    if what.direction == "bwd":
        item = dtype_nbytes(what.dtype)
        rows = what.batch * what.heads * what.queries * what.depth
        # Row sums of dO x O before, dQ gathered in f32 and converted after: two kernels far from streaming speed.
        ns += machine.memory_ns(rows * 2 * item) / 0.45 + machine.memory_ns(rows * (4 + item)) / 0.8
        ns += 2 * machine.gpu.achieved.kernel_floor_ns
    return ns


def _pairs(what: Problem, tile: int) -> float:
    """Query and key pairs; a causal mask is aligned at the end of the shorter side, and cuts whole tiles."""
    queries, keys = what.queries, what.keys
    whole = float(what.batch * what.heads) * queries * keys
    if not what.causal or queries <= 1:
        return whole
    half = keys - queries / 2 if keys >= queries else keys * keys / (2.0 * queries)
    return float(what.batch * what.heads) * queries * min(half + tile / 2, keys)
