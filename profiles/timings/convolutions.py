"""Corrects the modelled time of a convolution that was not measured by measured ones.

Which of its kernels cuDNN takes for a convolution, and how it splits sums, is decided by rules that are not documented:
two shapes that a model of products cannot tell apart take kernels of which one is twice as fast. But similar shapes
mostly take the same one. So the model's ratio to the measured time is averaged over measured neighbours, weighted by
their distance; far from all of them nothing is corrected. How much the neighbours differ says how far the answer may be
off. `python -m laboratory.fits.measured_convolutions` makes the file, from each direction of each shape measured by
itself on an H100, and chose the figures below: each shape was left out in turn, at all batches and in all dtypes.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from math import exp, log2, prod
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from profiles.descriptions.gpu import Gpu
from profiles.signature import Conv

FILE = Path(__file__).resolve().parents[1] / "measured" / "h100-convolutions.npz"
COMPUTE_CAPABILITY = (9, 0)
"""The compute capability of the measured GPU: cuDNN has other kernels for other ones."""
REACH = 0.8
"""The distance at which a neighbour's weight has fallen to 1/e."""
MODEL = 0.002
"""The weight of the model's own answer."""
FURTHEST = 5.0
SCALES = (0.8, 0.3, 2.5, 2.5, 5.0, 1.2, 2.0, 1.0, 1.6, 0.36, 0.25, 0.7, 0.36, 1.0, 0.36, 5.0)
"""The scales of the features of `place_of`, in their order."""
FEW_CHANNELS = 8
VECTOR_BITS, PIXEL_BITS = 3, 4
"""The powers of two from which on channels and pixels that are a multiple of them count as aligned as well as any."""
APART = 3.0
"""The distance between groups of as many channels on both sides and others."""
APART_OF_FEW = 5.0
"""The distance between f16 and bf16 for few channels in windows that overlap; else these have the same kernels."""
FEW_NEAR, NEAR = 0.05, 0.1
"""The figures of the error: how the neighbours differ, and FEW_NEAR / (NEAR + the neighbours' weights)."""
Floats = NDArray[np.float32]
_SCALES = np.array(SCALES, np.float32)


@dataclass(frozen=True, slots=True)
class Nearby:
    factor: float
    """The measured time over the modelled one."""
    weight: float
    """The sum of the neighbours' weights: 1 is one neighbour that is equal."""
    spread: float
    """The mean distance of the neighbours' logarithms from that of the factor."""

    @property
    def error_share(self) -> float:
        return self.spread + FEW_NEAR / (NEAR + self.weight)


def nearby(gpu: Gpu, what: Conv) -> Nearby | None:
    """The correction by measured neighbours; None: nothing like it was measured."""
    if (gpu.cc_major, gpu.cc_minor) != COMPUTE_CAPABILITY:
        return None
    family, place = place_of(what)
    if family not in (known := _shipped()):
        return None
    return known[family].around(scaled(place))


class Members:
    """The measured members of a family."""

    def __init__(self, places: Floats, ratios: Floats) -> None:
        """`places`: scaled. `ratios`: the logarithms of measured over modelled times."""
        self.places, self._ratios = places, ratios
        self._squares: Floats = (places**2).sum(1)

    def around(self, place: Floats, but: NDArray[np.bool_] | None = None) -> Nearby | None:
        """The correction at this place. `but`: members that are left out."""
        squares = self._squares + (place @ place - 2 * (self.places @ place))
        near = squares < FURTHEST**2 if but is None else (squares < FURTHEST**2) & ~but
        ratios = self._ratios[near]
        if not ratios.size:
            return None
        weights = np.exp(np.sqrt(np.maximum(squares[near], 0.0)) / -REACH)
        total = float(weights.sum())
        found = float(weights @ ratios) / (total + MODEL)
        spread = (float(weights @ np.abs(ratios - found)) + MODEL * abs(found)) / (total + MODEL)
        return Nearby(exp(found), total, spread)


def scaled(place: tuple[float, ...]) -> Floats:
    return np.array(place, np.float32) * _SCALES


def place_of(what: Conv) -> tuple[str, tuple[float, ...]]:
    """The family, and the place in it: logarithms of sizes to the base 2, and what a kernel must fit."""
    groups = max(what.groups, 1)
    inner, outer = what.w[1], max(what.w[0] // groups, 1)
    taps, pixels = prod(what.w[2:]), prod(what.y[2:])
    half, few = what.dtype in ("f16", "bf16"), min(inner, outer) < FEW_CHANNELS
    shared = "depthwise" if groups > 1 and inner == outer == 1 else "groups" if groups > 1 else "one"
    family = f"{'half' if half else what.dtype}-{what.direction}-{what.layout}-{len(what.w)}-{shared}"
    sizes = (what.y[0] * pixels, pixels, inner, outer, taps, prod(what.stride), prod(what.dilation), groups)
    return family, (
        *(log2(max(size, 1)) for size in sizes),
        float(_powers(inner, VECTOR_BITS)),
        float(_powers(outer, VECTOR_BITS)),
        float(_powers(prod(what.x[2:]), PIXEL_BITS)),
        (APART_OF_FEW if few and prod(what.stride) < taps else 1.0) * (what.dtype == "f16"),
        log2(max(what.w[-2], 1)) - log2(max(what.w[-1], 1)),
        APART * (groups > 1 and inner != outer),
        float(few),
        float(taps == 1 and max(what.stride, default=1) == 1),
    )


def _powers(count: int, most: int) -> int:
    """The powers of two of which the count is a multiple, at most `most`."""
    return min((count & -count).bit_length() - 1, most) if count else most


@cache
def _shipped() -> dict[str, Members]:
    return {name: Members(places * _SCALES, ratios) for name, (places, ratios) in load(FILE).items()}


def load(path: Path) -> dict[str, tuple[Floats, Floats]]:
    """The places, not scaled, and ratios of each family."""
    with np.load(path) as file:
        names = [name.removesuffix("/places") for name in file.files if name.endswith("/places")]
        return {
            name: (file[f"{name}/places"].astype(np.float32), file[f"{name}/ratios"].astype(np.float32))
            for name in names
        }


def save(path: Path, found: dict[str, tuple[Floats, Floats]]) -> None:
    """Writes a file that `load` reads."""
    arrays = {}
    for name, (places, ratios) in sorted(found.items()):
        arrays[f"{name}/places"], arrays[f"{name}/ratios"] = places.astype(np.float16), ratios.astype(np.float16)
    with path.open("wb") as file:
        np.savez_compressed(file, **arrays)  # type: ignore[arg-type]
