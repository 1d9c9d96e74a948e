"""Keeps the heap of ranks small: large blocks go back to the kernel when they are freed."""

from __future__ import annotations

import ctypes

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
_LARGE_NBYTES = 1 << 18


def return_freed() -> None:
    """Fixes glibc's thresholds: left alone it would learn from torch's tables of chunks to keep tens of megabytes."""
    libc = ctypes.CDLL(None)
    libc.mallopt(_M_MMAP_THRESHOLD, _LARGE_NBYTES)
    libc.mallopt(_M_TRIM_THRESHOLD, 2 * _LARGE_NBYTES)
