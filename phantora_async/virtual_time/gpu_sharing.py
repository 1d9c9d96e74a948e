"""How fast segments of several streams of one GPU go on side by side.

Comes in: how much of the GPU each segment's kernels take. Goes out: the rate of each.

Two kernels that each fill the GPU take nearly as long side by side as one after the other: of the time that they share,
SHARED is lost by them together. A copy over PCIe, or a kernel of few blocks, takes next to nothing of another kernel.
How much of the GPU a kernel takes is seen from what it loses when NCCL takes part of the SMs and of the memory's
bandwidth: nothing if it leaves so much unused, the share that NCCL takes or more if it fills the GPU.
"""

from __future__ import annotations

from collections.abc import Sequence

FULL = 16
"""The fill of a kernel that leaves nothing of the GPU."""
FULL_SLOWDOWN = 8
"""A kernel that takes 1/8 longer beside NCCL fills the GPU."""
WORK_UNIT = 1 << 16
"""Units of work that rates are multiples of, so that rounding them down loses next to nothing."""
_ONE = 320
"""FULL x FULL / SHARED, with SHARED = 0.8: measured on H200s where FSDP2 packs gradients beside matrix products."""


def fill_of(solo_ns: int, contended_ns: int) -> int:
    """From the durations of the same kernels alone and beside NCCL."""
    if contended_ns <= solo_ns:
        return 0
    return min(FULL, FULL * FULL_SLOWDOWN * (contended_ns - solo_ns) // solo_ns) if solo_ns else FULL


def rates(alone: Sequence[int], fills: Sequence[int]) -> list[int]:
    """Units per nanosecond of segments that run side by side, from their rates without the others.

    Each loses what the others take of the part that it needs itself.
    """
    total = sum(fills)
    return [rate * _ONE // (_ONE + fill * (total - fill)) for rate, fill in zip(alone, fills, strict=True)]
