"""Models cuDNN's convolutions of f32 without tensor cores that transform tiles of the images: Winograd's transform for
gradients of weights, Fourier's for the others. Products in the transformed space need fewer multiplications.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod

from profiles.models.machine import Machine
from profiles.models.products.tiles import VECTOR_F32, product_ns
from profiles.signature import Conv

OUTPUT, TRANSFORMED, FEWEST_CHANNELS = 4, 36, 16
"""The figures of Winograd's transform: outputs of a tile along a side; values of a transformed tile; the fewest
channels for which it is used.
"""
FOURIER = 32
FORWARD_FOURIER = (16, 32, 64)
"""The sides of a tile of Fourier's transform; forward, the least that an image fits."""
# Which calls go through Fourier's transform: pixels of all images, sides, channels, and pixels x channels x channels.
FEW_SPECTRA, LEAST_PIXELS, FEWER_PIXELS, MANY_PIXELS = 23_552, 12_672, 7_296, 139_264
LEAST_SIDE, MOST_SIDE, DEEP, DEEP_OUTPUT, SEVERAL_IMAGES, LEAST_IMAGES = 21, 84, 80, 112, 16, 30
MIDDLE_WORK, LARGE_WORK = (144e6, 288e6), (334e6, 2_600e6)
COMPLEX_NBYTES, COMPLEX_FLOPS = 8, 4  # a complex product is as many real ones
TRANSFORM_STREAM = 0.9  # share of the streaming bandwidth
FOURIER_STREAM = 0.55
NEVER_SPLIT = 1 << 40
PRODUCTS = replace(VECTOR_F32, name="transformed f32", shapes=((32, 32), (64, 64)), least_k=NEVER_SPLIT)
SPECTRA = replace(PRODUCTS, name="transformed complex f32", shapes=((32, 32), (32, 64), (64, 32), (64, 64)), rate=1.5)


def winograds(what: Conv) -> bool:
    """Returns true if the gradient of the weights is computed by Winograd's transform."""
    if what.direction != "wgrad" or what.groups > 1 or tuple(what.w[2:]) != (3, 3):
        return False
    return prod(what.stride) == 1 and prod(what.dilation) == 1 and what.w[1] >= FEWEST_CHANNELS


def winograd_ns(machine: Machine, what: Conv) -> float:
    """The time by Winograd's transform: both operands' tiles of 6 x 6 are transformed, then there is a product for each
    of the 36 values.
    """
    tiles = what.y[0] * prod(-(-side // OUTPUT) for side in what.y[2:])
    outer, inner = what.w[0], what.w[1]
    item = 4
    transformed = TRANSFORMED * tiles * (outer + inner) * item
    copied = machine.memory_ns(transformed + item * (prod(what.x) + prod(what.y))) / TRANSFORM_STREAM
    nbytes = transformed + TRANSFORMED * outer * inner * item
    multiplied = product_ns(machine, PRODUCTS, "f32", outer, inner, tiles, TRANSFORMED, nbytes=nbytes)
    return copied + multiplied + 3 * machine.gpu.achieved.kernel_floor_ns


def in_fourier_space(what: Conv) -> bool:
    """Returns true if the products are those of spectra. Which calls take this way is not documented: the rule was read
    off 364 calls, of which it tells 94 %; of 308 others it tells 86 %.
    """
    if what.layout != "nchw" or what.groups > 1 or tuple(what.w[2:]) != (3, 3):
        return False
    if prod(what.stride) > 1 or prod(what.dilation) > 1 or min(what.w[0], what.w[1]) < FEWEST_CHANNELS:
        return False
    outer, inner, images, side = what.w[0], what.w[1], what.x[0], max(what.x[2:])
    pixels = images * prod(what.x[2:])
    if what.direction == "dgrad":
        if outer * inner <= FEW_SPECTRA:
            return (pixels > LEAST_PIXELS and side > LEAST_SIDE) or (
                pixels > FEWER_PIXELS and inner > DEEP and outer <= inner
            )
        if outer > inner:
            return pixels > MANY_PIXELS and images >= SEVERAL_IMAGES
        return pixels > LEAST_PIXELS and side <= MOST_SIDE
    work = pixels * outer * inner
    if what.direction != "fwd" or images < LEAST_IMAGES:
        return False
    if outer < DEEP_OUTPUT:
        return MIDDLE_WORK[0] < work < MIDDLE_WORK[1] and side > LEAST_SIDE
    return LARGE_WORK[0] < work < LARGE_WORK[1] or (work >= LARGE_WORK[1] and outer == inner)


def fourier_ns(machine: Machine, what: Conv) -> float:
    """Tiles of 32 x 32, of which the filter's border overlaps the next one; a complex product for each frequency."""
    needs = max(what.x[2:]) + max(what.w[2:]) - 1
    fits = (side for side in FORWARD_FOURIER if needs <= side)
    side = next(fits, FORWARD_FOURIER[-1]) if what.direction == "fwd" else FOURIER
    frequencies = side * (side // 2 + 1)
    inside = [side - taps + 1 for taps in what.w[2:]]
    parts = prod(-(-pixels // part) for pixels, part in zip(what.x[2:], inside, strict=True))
    tiles = what.x[0] * parts  # a product takes those of one place in all images
    outer, inner = what.w[0], what.w[1]
    spectrum = COMPLEX_NBYTES * frequencies
    transformed = spectrum * (tiles * (outer + inner) + outer * inner)
    copied = machine.memory_ns(transformed + 4 * (prod(what.x) + prod(what.y) + prod(what.w))) / FOURIER_STREAM
    sides = (outer, what.x[0], inner) if what.direction == "fwd" else (inner, what.x[0], outer)
    of_a_part = spectrum * (what.x[0] * (outer + inner) + outer * inner) / COMPLEX_FLOPS
    multiplied = COMPLEX_FLOPS * parts * product_ns(machine, SPECTRA, "f32", *sides, frequencies, nbytes=of_a_part)
    return copied + multiplied + 3 * parts * machine.gpu.achieved.kernel_floor_ns
