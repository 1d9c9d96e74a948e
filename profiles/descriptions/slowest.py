"""Estimates the slowest of several GPUs or ranks that work together: it decides how long all of them take."""

from __future__ import annotations

from statistics import NormalDist

_LARGEST = (0.0, 0.564, 0.846, 1.029, 1.163, 1.267, 1.352, 1.424)
COUNTED = len(_LARGEST)
"""The number from which on more ranks make no difference to hosts: no larger group was measured.

GPUs count further. Their clocks differ by how each chip was made, so the slowest of thousands is farther from the mean
than that of eight: over the whole of four clusters GPUs differ by 8 % (Sinha et al., SC22), which is the range of
several hundred values of the spread measured here (1.4 % of the clock).
"""


def largest_of(n: int) -> float:
    """The mean of the largest of so many standard normal values; beyond eight by Blom's formula."""
    return _LARGEST[n - 1] if n <= COUNTED else NormalDist().inv_cdf((n - 0.375) / (n + 0.25))
