"""Keeps the C heap of ranks small: large blocks go back to the kernel when they are freed."""

from __future__ import annotations

import ctypes

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
_LARGE_NBYTES = 1 << 18


def return_large_blocks() -> None:
    """Fixes glibc's thresholds, which otherwise grow with the blocks that are freed. Called in the forker, before it
    forks.

    While torch is imported they would grow until every rank keeps tens of megabytes of free memory.
    """
    libc = ctypes.CDLL(None)
    libc.mallopt(_M_MMAP_THRESHOLD, _LARGE_NBYTES)
    libc.mallopt(_M_TRIM_THRESHOLD, 2 * _LARGE_NBYTES)
    libc.malloc_trim(0)  # every fork copies the entries of these pages
