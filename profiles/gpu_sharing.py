"""Computes how kernels that run side by side slow each other down, and how a collective slows those beside it.

Two kernels that each fill the GPU take nearly as long side by side as one after the other: of the time that they share,
a share is lost by them together. A copy over PCIe, or a kernel of few blocks, takes next to nothing of another kernel.
How much of the GPU a kernel takes is seen from what it loses when NCCL takes part of the SMs and of the memory's
bandwidth: nothing if it leaves so much unused, the share that NCCL takes or more if it fills the GPU.

All numbers are integers: who simulates can go back and forth without rounding differently. Virtual time does in Python,
the engine of replays in C; gpu_sharing.def has the constants of both.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from formats.c_lists import read_list

_CONSTANTS = {name: int(value) for _, (name, value) in read_list(Path(__file__).with_suffix(".def"), "CONSTANT")}
FULL = _CONSTANTS["FULL"]
FULL_SLOWDOWN = _CONSTANTS["FULL_SLOWDOWN"]
WORK_UNIT = _CONSTANTS["WORK_UNIT"]
ONE = _CONSTANTS["ONE"]


def fill_of(solo_ns: int, contended_ns: int) -> int:
    """The share of the GPU that kernels take, in parts of FULL, from their durations alone and beside NCCL."""
    if contended_ns <= solo_ns:
        return 0
    return min(FULL, FULL * FULL_SLOWDOWN * (contended_ns - solo_ns) // solo_ns) if solo_ns else FULL


def rates(alone: Sequence[int], fills: Sequence[int]) -> list[int]:
    """The units of work per nanosecond of kernels that run side by side, from their rates without the others.

    Each loses the share that the others take of the part that it needs itself.
    """
    total = sum(fills)
    return [rate * ONE // (ONE + fill * (total - fill)) for rate, fill in zip(alone, fills, strict=True)]
