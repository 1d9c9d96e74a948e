"""Measures the emulation's own work on this machine: with `--host measured` it is left out of the program's time.

PyTorch writes names and sizes for every range, and the hook library counts Python functions and calls: none of that
would happen on a real machine. It is measured once a rank, on operators and functions that do next to nothing. What the
emulation computes for control tensors is left out exactly, where it happens.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable

from .hook_library import Hook
from .nvtx_ranges import NvtxRanges

_REPEATS = 2_000
_TRIES = 5


def tell(hook: Hook, ranges: NvtxRanges) -> None:
    """Measures this work and tells the hook library. Called in the rank, before the script, with ranges on."""
    import torch

    value = torch.empty(4, 4)

    def operators() -> None:
        for _ in range(_REPEATS):
            value.detach()

    def function() -> None:
        return None

    def functions() -> None:
        for _ in range(_REPEATS):
            function()

    observed = _least_ns(operators)
    ranges.pause()
    range_ns = (observed - _least_ns(operators)) // 2  # an operator and the one inside of it
    ranges.unpause()
    counted = _least_ns(functions)
    hook.frames_on(False)
    frame_ns = counted - _least_ns(functions)
    hook.frames_on(True)
    hook.own_work(_call_ns(), max(0, range_ns), max(0, frame_ns))


def _call_ns() -> int:
    """Returns the time of a CUDA call of the hook library, in ns; what ctypes takes for a call is known from one that
    does nothing.
    """
    library = ctypes.CDLL(None)

    def repeated(function: Callable[[], int]) -> Callable[[], None]:
        def run() -> None:
            for _ in range(_REPEATS):
                function()

        return run

    return max(0, _least_ns(repeated(library.cudaPeekAtLastError)) - _least_ns(repeated(library.phantora_abi_version)))


def _least_ns(run: Callable[[], None]) -> int:
    """Returns the processor time of one repetition, in ns, in the best of some tries."""
    best = 1 << 62
    for _ in range(_TRIES):
        begin = time.thread_time_ns()
        run()
        best = min(best, time.thread_time_ns() - begin)
    return best // _REPEATS
