"""Converts bf16, f8e4m3 and f8e5m2, which numpy lacks, to single precision and back, rounded to nearest, ties to
even.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

BF16, F8E4M3, F8E5M2 = 9, 10, 11
"""The values of ncclDataType_t."""
Array = NDArray[Any]


def _values(exponent_bits: int, mantissa_bits: int, *, infinities: bool) -> Array:
    """The values of the 256 codes of an 8-bit format. Without infinities (OCP E4M3), only all ones is NaN."""
    codes = np.arange(256)
    sign = np.where(codes & 0x80, -1.0, 1.0)
    exponent = (codes >> mantissa_bits) & ((1 << exponent_bits) - 1)
    mantissa = codes & ((1 << mantissa_bits) - 1)
    bias = (1 << (exponent_bits - 1)) - 1
    normal = (1 + mantissa / (1 << mantissa_bits)) * 2.0 ** (exponent - bias)
    subnormal = mantissa / (1 << mantissa_bits) * 2.0 ** (1 - bias)
    value = sign * np.where(exponent == 0, subnormal, normal)
    if infinities:
        top = exponent == (1 << exponent_bits) - 1
        value = np.where(top, np.where(mantissa == 0, sign * np.inf, np.nan), value)
    else:
        value = np.where((codes & 0x7F) == 0x7F, np.nan, value)
    single: Array = value.astype("<f4")
    return single


_E4M3 = _values(4, 3, infinities=False)
_E5M2 = _values(5, 2, infinities=True)


def load(data: bytes, dtype: int) -> Array:
    """The elements in single precision, exactly."""
    if dtype == BF16:
        whole: Array = (np.frombuffer(data, "<u2").astype("<u4") << 16).view("<f4")
        return whole
    values: Array = (_E4M3 if dtype == F8E4M3 else _E5M2)[np.frombuffer(data, "u1")]
    return values


def store(array: Array, dtype: int) -> bytes:
    """The elements rounded from single precision. E4M3 saturates at 448, its largest number; E5M2 and bf16 overflow to
    infinity.
    """
    single = array.astype("<f4")
    if dtype == BF16:
        bits = single.view("<u4").astype("<u8")
        rounded = ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype("<u2")
        quiet = ((bits >> 16) | 0x40).astype("<u2")
        return np.where(np.isnan(single), quiet, rounded).astype("<u2").tobytes()
    return _nearest(single, _E4M3 if dtype == F8E4M3 else _E5M2).tobytes()


def _nearest(single: Array, values: Array) -> NDArray[np.uint8]:
    """The codes of the nearest values; of two equally near values, the even code."""
    finite = np.flatnonzero(np.isfinite(values[:128]))
    grid = values[finite].astype("<f8")
    size = np.abs(single).astype("<f8")
    clipped = np.where(np.isnan(size), 0.0, np.minimum(size, grid[-1]))
    above = np.searchsorted(grid, clipped)
    below = np.maximum(above - 1, 0)
    nearer_above = grid[above] - clipped
    nearer_below = clipped - grid[below]
    take_below = (nearer_below < nearer_above) | ((nearer_below == nearer_above) & (finite[below] % 2 == 0))
    codes = np.where(take_below, finite[below], finite[above]).astype("u1")
    if np.isinf(values[:128]).any():
        largest, step = grid[-1], grid[-1] - grid[-2]
        codes = np.where(size >= largest + step / 2, np.uint8(finite[-1] + 1), codes).astype("u1")
    codes = np.where(np.isnan(size), np.uint8(0x7F), codes).astype("u1")
    signed: NDArray[np.uint8] = (codes | np.where(np.signbit(single), 0x80, 0)).astype("u1")
    return signed
