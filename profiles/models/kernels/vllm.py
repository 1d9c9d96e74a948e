"""Models kernels of vLLM's extensions: gated activations, norms, rotary embeddings, writes to the cache of keys and
values, the choice and sorting of experts, conversions to 8 bits.

A kernel's operation tells its tensors' shapes, and these its bytes. The cache's tensor is as large as the GPU's memory,
but a launch writes the rows of its tokens alone. A block goes through a row, a vector of 16 bytes for each thread:

    start + norm of (bytes / memory bandwidth, waves of blocks x what a block takes, items of the busiest SM)

Fitted to an H200 (laboratory/rows/vllm-kernels-h200.jsonl.gz), in which the kernel before has written the operands.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from math import prod

from profiles.descriptions.gpu import Gpu
from profiles.kernel_names.kernel_name import KernelName
from profiles.models.machine import Estimate, Machine, both, overlapped
from profiles.signature import Kernel, Shape, elements

TURN_THREADS = 512
REACH = 2.0  # times the L2 cache's size, from which on nothing of an operand is left there
WIDE, HALF, NARROW = 4.0, 2.0, 1.0
# Pairs of a token and an expert: what one takes in the single block that counts them, in the blocks that sort them, and
# in the single small block that does both.
ALIGN_START_NS, ALIGN_BLOCK_NS, ALIGN_NS, ALIGN_BESIDE, ALIGN_STREAM = 1_028.0, 657.0, 0.206, 6.7, 3.0
SORT_START_NS, SORT_NS = 150.0, 0.2
SMALL_START_NS, SMALL_EXPERT_NS, SMALL_TURN_NS, FILLING, WARP = 1_100.0, 90.0, 280.0, 256, 32
# The choice of experts: one after another, each by a search of a token's scores.
CHOICE_NS, SCORE_NS = 246.0, 0.51
SLOW_CHOICE_NS, SLOW_WAVE_NS, SOFTMAX_NS, SOFTMAX_WAVE_NS = 615.0, 1_100.0, 550.0, 1_420.0
SEARCHED = 4.0  # exponent that joins the time of one token and that of all

Count = Callable[[tuple[Shape, ...], float], float]
"""Counts bytes or items by the operation's shapes and the bytes of an item."""


@dataclass(frozen=True, slots=True)
class Rows:
    """Kernels whose blocks go through rows."""

    pattern: str
    model: str
    nbytes: Count
    items: Count
    start_ns: float
    stream: float
    """Times the time of its bytes."""
    block_ns: float
    """The time of a wave of blocks."""
    item_ns: float
    """The time of an item on its SM."""
    beside: float
    """The exponent that joins bytes and items."""
    by_turns: bool = False
    """True if an SM's blocks take the longer the more they are, although there is room for more of them at once."""

    def ns(self, machine: Machine, what: Kernel, item: float) -> float:
        blocks, sizes = prod(what.grid), what.sizes
        at_once = TURN_THREADS if self.by_turns else machine.gpu.limits.threads_per_sm
        places = machine.sms * at_once / prod(what.block)
        waves = max(blocks / places, 1.0)
        busy = machine.sms if self.by_turns else min(blocks, machine.sms)
        work = self.block_ns * waves + self.item_ns * self.items(sizes, item) / busy
        memory = self.stream * machine.memory_ns(self.nbytes(sizes, item), reach=REACH)
        return self.start_ns + overlapped(memory, work, exponent=self.beside)


def _first(sizes: tuple[Shape, ...], item: float) -> float:
    return float(elements(sizes[0]))


def _second(sizes: tuple[Shape, ...], item: float) -> float:
    return float(elements(sizes[1]))


def _first_two(sizes: tuple[Shape, ...], item: float) -> float:
    return float(elements(sizes[0]) + elements(sizes[1]))


def _rotated(sizes: tuple[Shape, ...], item: float) -> float:
    return float(elements(sizes[1]) + sum(elements(one) for one in sizes[2:3] if one))


def _times(count: Count, factor: float) -> Count:
    return lambda sizes, item: factor * item * count(sizes, item)


def _to_narrow(sizes: tuple[Shape, ...], item: float) -> float:
    return (item + NARROW) * _second(sizes, item)


def _in_groups(sizes: tuple[Shape, ...], item: float) -> float:
    return (item + NARROW) * _first(sizes, item) + WIDE * elements(sizes[2])


ACTIVATION, NORM, ROTARY, CACHE = "vLLM, activation", "vLLM, norm", "vLLM, rotary embedding", "vLLM, cache"
CONVERSION, ROUTING, SUM = "vLLM, conversion", "vLLM, routing", "vLLM, sum of experts"
ROWS = (
    Rows(r"^act_and_mul_kernel", ACTIVATION, _times(_first_two, 1), _second, 242.0, 0.50, 0.0, 0.0713, 1.1),
    Rows(r"^fused_add_rms_norm_kernel", NORM, _times(_first, 4), _first, 595.0, 1.02, 0.0, 0.102, 5.3),
    Rows(r"^rms_norm_kernel", NORM, _times(_first, 2), _first, 237.0, 0.72, 280.0, 0.0517, 1.0),
    Rows(
        r"^rotary_embedding_kernel",
        ROTARY,
        _times(_rotated, 2),
        _rotated,
        0.0,
        2.42,
        518.0,
        0.224,
        8.0,
    ),
    Rows(
        r"^reshape_and_cache_flash_kernel",
        CACHE,
        _times(_first_two, 2),
        _first_two,
        424.0,
        1.06,
        345.0,
        0.133,
        8.0,
        True,
    ),
    Rows(r"^moe_sum_vec_kernel", SUM, _times(_first_two, 1), _first, 16.0, 1.07, 0.0, 0.0268, 3.1),
    Rows(r"^absmax_reduction_flat", CONVERSION, _times(_second, 1), _second, 203.0, 1.26, 39.0, 0.0, 1.0),
    Rows(r"^scaled_fp8_quant_kernel_strided", CONVERSION, _to_narrow, _second, 70.0, 0.50, 147.0, 0.0487, 1.0),
    Rows(r"^dynamic_per_token_scaled_fp8_quant", CONVERSION, _to_narrow, _second, 164.0, 0.50, 576.0, 0.131, 6.0),
    Rows(r"^per_token_group_quant_8bit", CONVERSION, _in_groups, _first, 421.0, 0.51, 0.0, 0.134, 1.0),
)


def _aligned(machine: Machine, what: Kernel, waves: float) -> float:
    """Pairs are counted by one block, while another fills the places that no pair has."""
    pairs, places = elements(what.sizes[0]), elements(what.sizes[3])
    filled = ALIGN_STREAM * machine.memory_ns(WIDE * (pairs + places), reach=REACH)
    return ALIGN_START_NS + overlapped(filled, ALIGN_BLOCK_NS + ALIGN_NS * pairs, exponent=ALIGN_BESIDE)


def _sorted(machine: Machine, what: Kernel, waves: float) -> float:
    return SORT_START_NS + SORT_NS * elements(what.sizes[0])


def _few(machine: Machine, what: Kernel, waves: float) -> float:
    """A thread for each expert goes through the pairs; the other threads of the block fill places."""
    pairs = elements(what.sizes[0])
    counting = max(what.block[0] - FILLING, WARP)
    return SMALL_START_NS + SMALL_EXPERT_NS * _experts(what) + SMALL_TURN_NS * pairs / counting


def _experts(what: Kernel) -> int:
    """The number of experts, by the places for pairs: each may need a tile less one more than its pairs."""
    pairs, places = elements(what.sizes[0]), elements(what.sizes[3])
    tile = max(round(places / max(elements(what.sizes[4]), 1)), 2)
    return max(round((places - pairs) / (tile - 1)), 1)


def _chosen(machine: Machine, what: Kernel, waves: float) -> float:
    scores, blocks = elements(what.sizes[3]), prod(what.grid)
    return CHOICE_NS * what.sizes[0][-1] + SCORE_NS * scores / min(blocks, machine.sms)


def _chosen_slowly(machine: Machine, what: Kernel, waves: float) -> float:
    return what.sizes[0][-1] * overlapped(SLOW_CHOICE_NS, SLOW_WAVE_NS * waves, exponent=SEARCHED)


def _softmax(machine: Machine, what: Kernel, waves: float) -> float:
    return overlapped(SOFTMAX_NS, SOFTMAX_WAVE_NS * waves, exponent=SEARCHED)


ROUTES: tuple[tuple[str, int, Callable[[Machine, Kernel, float], float]], ...] = (
    (r"^moe_align_block_size_kernel", 5, _aligned),
    (r"^count_and_sort_expert_tokens", 1, _sorted),
    (r"^moe_align_block_size_small_batch", 5, _few),
    (r"^topkGating", 4, _chosen),
    (r"^moeTopK", 1, _chosen_slowly),
    (r"^moeSoftmax", 1, _softmax),
)
"""Pattern of a kernel's name, the shapes that the model needs, the time without the floor of a launch."""


def kernel(gpu: Gpu, what: Kernel, name: KernelName) -> Estimate | None:
    """The estimate of a kernel of vLLM; None for others, and where the operation's shapes are not known."""
    if not what.op.startswith(("_C::", "_C_cache_ops::", "_moe_C::")):
        return None
    base = _base(name)
    rows = next((one for one in ROWS if re.search(one.pattern, base)), None)
    if rows is not None and len(what.sizes) >= (2 if rows.model in (ACTIVATION, SUM) else 3):
        item = WIDE if "float" in name.text.partition("<")[2].partition(",")[0] else HALF
        nbytes = rows.nbytes(what.sizes, item)
        return both(gpu, partial(rows.ns, what=what, item=item), model=rows.model, nbytes=nbytes)
    route = next((one for one in ROUTES if re.search(one[0], base)), None)
    if route is None or len(what.sizes) < route[1] or not what.sizes[0]:
        return None
    return both(gpu, partial(_route_ns, route[2], what=what), model=ROUTING)


def _route_ns(ns: Callable[[Machine, Kernel, float], float], machine: Machine, what: Kernel) -> float:
    places = machine.sms * machine.gpu.limits.threads_per_sm
    return ns(machine, what, prod(what.grid) * prod(what.block) / places)


def _base(name: KernelName) -> str:
    """The function's name, also where what it returns stands before it (`std::enable_if<...> vllm::f<...>`)."""
    found = re.search(r"vllm::(\w+_kernel)\b", name.text)
    return found[1] if name.base == "enable_if" and found else name.base
