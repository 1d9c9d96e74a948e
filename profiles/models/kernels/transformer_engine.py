"""Models Transformer Engine's own kernels by the bytes of their operands.

They are persistent, or their grids depend on occupancy: the same for operands of any size. The launch provides what
decides (`sized`): rows and columns among its numbers, and the blocks that its pointers lie in. A view of a larger block
(a weight in a buffer of all parameters) counts as much as rows and columns allow.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from math import prod

from profiles.descriptions.gpu import Gpu
from profiles.kernel_names.kernel_name import KernelName, item_nbytes, split_arguments
from profiles.models.kernels.operands import numbers
from profiles.models.machine import Estimate, Machine, both
from profiles.signature import Sized

Bytes = Callable[[Sized, KernelName], float]
Time = Callable[[Machine, Sized, KernelName], float]
WIDEST_ITEM, NARROW, WARP = 4.0, 2.0, 32
NORM_START_NS, NORM_GENERAL_START_NS = 1_300.0, 2_000.0
NORM_FORWARD, NORM_BACKWARD = 1.10, 1.20
"""The factors on the time of the bytes, for kernels that are tuned to a row's length."""
GENERAL_FORWARD, GENERAL_BACKWARD = 3.2, 2.5
"""The factors on the time of the bytes, for kernels that are not tuned."""
FINALIZE_NS, FINALIZE_ROW_NS = 1_500.0, 48.0
FINALIZE_ROWS = (660.0, 396.0)
"""The blocks of the gradient before, each of which leaves a row: for rows up to SHORT, and for longer ones."""
SHORT = 2048
CAST_START_NS, CAST = 1_600.0, 1.16
GENERAL_CAST_START_NS, GENERAL_CAST = 6_500.0, 1.95
BLOCK_START_NS, BLOCK_1D, BLOCK_2D = 3_300.0, 1.56, 1.11
AMAX_START_NS, AMAX = 800.0, 1.30
ACTIVATION_START_NS, ACTIVATION = 2_000.0, 1.05
TRANSPOSE_START_NS, TRANSPOSE = 600.0, 1.04
ROPE_START_NS, ROPE_ITEM_NS, ROPE_WARP_NS = 1_970.0, 0.00169, 0.115
ROPE_EARLY_NS, ROPE_SEARCH_NS = 0.092, 0.118
"""A warp whose token lies beyond its sequence's end, and what a warp takes more where it looks for its sequence."""
QKV_ROPE_ITEM_NS = 0.00278
"""The time of an item of queries, keys and values together, which are gone through by single items."""
ROUTED_START_NS, ROUTED_EXPERT_NS, ROUTED_TOKEN_NS, ROUTED_PAIR_NS = 2_200.0, 14.0, 0.60, 0.0065
ROUTED_BACK_START_NS, ROUTED_BACK_TOKEN_NS, ROUTED_BACK_PAIR_NS = 1_100.0, 0.38, 0.0033
DBIAS_START_NS, DBIAS_ROW_NS = 100.0, 112.0
MANY_START_NS, MANY = 10_000.0, 2.1
SCALES_START_NS, SCALE_NS = 3_000.0, 40.0
LINE_NBYTES, PUSHED_GB_PER_S = 16, 42.0
"""The bytes of a line that a block stores, and the GB/s of a block that stores over NVLink 4: as fast as one of NCCL's
blocks in a send (first_gbs in netsim's hopper.toml).
"""


@dataclass(frozen=True, slots=True)
class Rule:
    pattern: str
    """The pattern of the function's name."""
    model: str
    nbytes: Bytes
    ns: Time
    """The time without the floor of a launch."""


def _moved(nbytes: Bytes, start_ns: float, slowdown: float) -> Time:
    return lambda machine, what, name: start_ns + slowdown * machine.memory_ns(nbytes(what, name))


def _of_operands(what: Sized, name: KernelName) -> float:
    """The bytes of all operands, each counted once."""
    given = numbers(what)[:2]
    most = WIDEST_ITEM * prod(given) if given else float("inf")
    blocks = what.buffers.split(",")
    return sum(min(float(one[1:]), most) if one.startswith("~") else float(one) for one in blocks if one != "-")


def _items(name: KernelName) -> tuple[float, float]:
    """The bytes of an input's and an output's item of a norm: Kernel_traits<weight, input, output, ...>."""
    inner = name.arguments[0] if name.arguments else ""
    types = split_arguments(inner[inner.index("<") :]) if "<" in inner else ()
    return (item_nbytes(types[1]), item_nbytes(types[2])) if len(types) > 2 else (NARROW, NARROW)


def _norm_nbytes(what: Sized, name: KernelName) -> float:
    """The bytes of a norm. Forward, the input is read and the output written. Backward, the gradient and the input are
    read, the input's gradient is written; sums of the weights' gradients stay in the cache.
    """
    given = numbers(what)
    if len(given) < 4:
        return _of_operands(what, name)
    read, written = _items(name)
    return given[2] * given[3] * (2 * read + written if "_bwd_" in name.base else read + written)


def _general_norm(start_ns: float, slowdown: float) -> Time:
    """The time of kernels that fit rows of any length: by elements, whatever their type, since no wider loads help."""

    def model(machine: Machine, what: Sized, name: KernelName) -> float:
        given, nbytes = numbers(what), _norm_nbytes(what, name)
        moved = machine.memory_ns(nbytes)
        if len(given) < 4:
            return start_ns + slowdown * moved
        items = NARROW * given[2] * given[3] * (3 if "_bwd_" in name.base else 2)
        return start_ns + max(slowdown * machine.memory_ns(items), moved)

    return model


def _nothing(what: Sized, name: KernelName) -> float:
    return 0.0


def _finalize(machine: Machine, what: Sized, name: KernelName) -> float:
    """The time of threads that go through the rows that the blocks of the gradient have left of a column, one after
    another.
    """
    given = numbers(what)
    if len(given) < 4 or "tuned" in name.base:
        return FINALIZE_NS
    most = FINALIZE_ROWS[given[3] > SHORT] / max(given[1], 1)
    return FINALIZE_NS + FINALIZE_ROW_NS * min(given[0], most)


def _rope(machine: Machine, what: Sized, name: KernelName) -> float:
    """The time of a kernel with a block a token, whose warps compute the token's sines and share its heads. Where
    sequences are packed there are blocks for the longest one each; those beyond a sequence's end return.
    """
    item = item_nbytes(name.arguments[0]) if name.arguments else NARROW
    blocks, part = prod(what.grid), machine.gpu.sm_count / machine.sms
    sizes = sorted((float(one.lstrip("~")) for one in what.buffers.split(",") if one != "-"), reverse=True)
    streamed = machine.memory_ns(_of_operands(what, name))
    if "qkv" in name.base:
        return ROPE_START_NS + max(part * QKV_ROPE_ITEM_NS * sizes[0] / item if sizes else 0.0, streamed)
    given = numbers(what)
    row = given[3] * given[4] if len(given) > 4 else 0
    tokens = min(sizes[1] / (item * row), blocks) if row and len(sizes) > 1 else blocks
    warps = what.block[0] * what.block[1] / WARP
    each = ROPE_WARP_NS + (ROPE_SEARCH_NS if "linear_grid" in name.base else 0.0)
    busy = warps * (tokens * each + (blocks - tokens) * ROPE_EARLY_NS) + ROPE_ITEM_NS * tokens * row
    return ROPE_START_NS + max(part * busy, streamed)


def _routed(machine: Machine, what: Sized, name: KernelName) -> float:
    """The time of a kernel with a warp a token, which goes through the experts once for each that it chooses."""
    tokens, experts = (*numbers(what), 1, 1)[:2]
    part = machine.gpu.sm_count / machine.sms
    if "backward" in name.base:
        return ROUTED_BACK_START_NS + part * tokens * (ROUTED_BACK_TOKEN_NS + ROUTED_BACK_PAIR_NS * experts)
    each = ROUTED_TOKEN_NS + ROUTED_PAIR_NS * experts
    return ROUTED_START_NS + ROUTED_EXPERT_NS * experts + part * tokens * each


def _dbias(machine: Machine, what: Sized, name: KernelName) -> float:
    """The time of a kernel with a thread a column, which adds up what blocks of rows have left."""
    rows = numbers(what)[1] if len(numbers(what)) > 1 else 1
    return DBIAS_START_NS + DBIAS_ROW_NS * rows


def _scales(machine: Machine, what: Sized, name: KernelName) -> float:
    """The time of a kernel with a block a tensor, which finds the largest value of its history."""
    return SCALES_START_NS + SCALE_NS * what.grid[0]


def _pushed(machine: Machine, what: Sized, name: KernelName) -> float:
    """The time of blocks that store lines of 16 bytes into another GPU's memory. Without lines a thread only sets a
    flag.
    """
    lines = (*numbers(what), 0)[0]
    rate = min(machine.gpu.peer_gb_per_s or machine.gpu.pcie.pinned_gb_per_s, PUSHED_GB_PER_S * prod(what.grid))
    return lines * LINE_NBYTES / rate


def _reduced_nbytes(what: Sized, name: KernelName) -> float:
    """The bytes of a kernel that reads the parts of all members, each of which has as many items as the sum that is
    written.
    """
    parts, items = (*numbers(what), 0, 0)[:2]
    return items * ((1.0 if "fp8" in name.base else NARROW) * parts + NARROW)


def _number(machine: Machine, what: Sized, name: KernelName) -> float:
    """The time of a thread that writes a number: no more than the floor of a launch."""
    return 0.0


CAST_MODEL, NORM_MODEL = "Transformer Engine, cast", "Transformer Engine, norm"
ROUTER_MODEL, ACTIVATION_MODEL = "Transformer Engine, router", "Transformer Engine, activation"
SMALL_MODEL, USER_BUFFERS_MODEL = "Transformer Engine, scales", "Transformer Engine, user buffers"
RULES: tuple[Rule, ...] = (
    Rule(r"^(rmsnorm|ln)_bwd_finalize", NORM_MODEL, _nothing, _finalize),
    Rule(r"^(rmsnorm|ln)_fwd_tuned", NORM_MODEL, _norm_nbytes, _moved(_norm_nbytes, NORM_START_NS, NORM_FORWARD)),
    Rule(r"^(rmsnorm|ln)_bwd_tuned", NORM_MODEL, _norm_nbytes, _moved(_norm_nbytes, NORM_START_NS, NORM_BACKWARD)),
    Rule(r"^(rmsnorm|ln)_fwd_", NORM_MODEL, _norm_nbytes, _general_norm(NORM_GENERAL_START_NS, GENERAL_FORWARD)),
    Rule(r"^(rmsnorm|ln)_bwd_", NORM_MODEL, _norm_nbytes, _general_norm(NORM_GENERAL_START_NS, GENERAL_BACKWARD)),
    Rule(r"^block_scaled_1d_cast", CAST_MODEL, _of_operands, _moved(_of_operands, BLOCK_START_NS, BLOCK_1D)),
    Rule(r"^block_scaled_cast", CAST_MODEL, _of_operands, _moved(_of_operands, BLOCK_START_NS, BLOCK_2D)),
    Rule(r"^multi_cast_transpose", CAST_MODEL, _of_operands, _moved(_of_operands, MANY_START_NS, MANY)),
    Rule(
        r"^(cast_)?transpose_(general|fused_kernel_notaligned)",
        CAST_MODEL,
        _of_operands,
        _moved(_of_operands, GENERAL_CAST_START_NS, GENERAL_CAST),
    ),
    Rule(r"^cast_transpose", CAST_MODEL, _of_operands, _moved(_of_operands, CAST_START_NS, CAST)),
    Rule(r"^quantize_.*(mxfp8|nvfp4)", CAST_MODEL, _of_operands, _moved(_of_operands, CAST_START_NS, CAST)),
    Rule(r"^(transpose_|swizzle)", CAST_MODEL, _of_operands, _moved(_of_operands, TRANSPOSE_START_NS, TRANSPOSE)),
    Rule(r"^amax_kernel", CAST_MODEL, _of_operands, _moved(_of_operands, AMAX_START_NS, AMAX)),
    Rule(
        r"^d?gated_act_kernel|^unary_(grad_)?kernel",
        ACTIVATION_MODEL,
        _of_operands,
        _moved(_of_operands, ACTIVATION_START_NS, ACTIVATION),
    ),
    Rule(r"^fused_(qkv_)?rope_", "Transformer Engine, rope", _of_operands, _rope),
    Rule(r"^fused_(topk|score)_", ROUTER_MODEL, _of_operands, _routed),
    Rule(r"^kuserbuffers_pushsend", USER_BUFFERS_MODEL, _nothing, _pushed),
    Rule(
        r"^reduce_(bf16|fp8_in_bf16_out)_cuda",
        USER_BUFFERS_MODEL,
        _reduced_nbytes,
        _moved(_reduced_nbytes, TRANSPOSE_START_NS, TRANSPOSE),
    ),
    Rule(r"^reduce_dbias_kernel", SMALL_MODEL, _of_operands, _dbias),
    Rule(r"^kernel_bulk$", SMALL_MODEL, _nothing, _scales),
    Rule(
        r"^(zero_amax|compute_scale_from_amax|update_tensor_scale_inv|set_float)_kernel|^extract_seed_and_offset"
        r"|^cu_seqlens_|^populate_rng_state|^tiny_delay_kern",
        SMALL_MODEL,
        _nothing,
        _number,
    ),
)


def estimate(gpu: Gpu, what: Sized, name: KernelName) -> Estimate | None:
    """The estimate; None if it is none of these kernels."""
    rule = next((one for one in RULES if re.search(one.pattern, name.base)), None)
    if rule is None:
        return None
    found = both(gpu, lambda machine: rule.ns(machine, what, name), model=rule.model)
    return replace(found, nbytes=rule.nbytes(what, name) * REALLY_MOVED)


REALLY_MOVED = 0.5
"""The least share of the bytes behind the pointers that a kernel moves, since blocks are larger than tensors."""
