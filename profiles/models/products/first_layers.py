"""Models first convolutions of networks: images of three channels, channels last or not, in 16 bits."""

from __future__ import annotations

from math import ceil, prod

from profiles.descriptions.gpu import Gpu
from profiles.models.machine import Estimate, Machine, both
from profiles.models.products.layouts import converted_ns
from profiles.signature import Conv, dtype_nbytes

FIRST_TAPS = 49
# Long filters of f16 have kernels of their own: time beside outputs, instructions an output.
FIRST_NS, FIRST_OUTPUT = {"fwd": 26_000.0, "wgrad": 51_000.0}, {"fwd": 52.0, "wgrad": 47.0}
FIRST_OUTPUTS = {"fwd": (32, 64), "wgrad": (64,)}  # channels of the output
FIRST_PADDED, FIRST_PADDED_STREAM = 4, 0.41  # channels of the input; share of the streaming bandwidth
# Of bf16, short filters with a stride have no tensor cores forward: instructions of an output, and of each product, of
# tiles of so many channels. Of weights: time over that of other padded channels.
SHORT_TAPS = (9, 16)
SPREAD_OUTPUT, SPREAD_PRODUCT, SPREAD_CHANNELS = 77.0, 3.1, 32


def is_first_layer(what: Conv) -> bool:
    long = len(what.w) == 4 and prod(what.w[2:]) >= FIRST_TAPS and min(what.stride) == 2
    fits = 2 < what.w[1] <= FIRST_PADDED and what.w[0] in FIRST_OUTPUTS.get(what.direction, ())
    return what.dtype == "f16" and what.groups == 1 and long and fits


def is_short(what: Conv) -> bool:
    """Returns true for first layers with short filters in bf16, channels last, with a stride."""
    short = len(what.w) == 4 and SHORT_TAPS[0] <= prod(what.w[2:]) <= SHORT_TAPS[1] and min(what.stride) > 1
    few = 2 < what.w[1] <= FIRST_PADDED and what.groups == 1
    return short and few and what.dtype == "bf16" and what.layout == "nhwc"


def is_spread(what: Conv) -> bool:
    """Returns true for patches and for filters of three by three."""
    return (
        what.direction == "fwd" and is_short(what) and (prod(what.w[2:]) == SHORT_TAPS[0] or what.stride == what.w[2:])
    )


def spread(gpu: Gpu, what: Conv, flops: float) -> Estimate:
    """The estimate of a forward convolution by the vector units."""
    outputs = what.y[0] * prod(what.y[2:]) * ceil(what.w[0] / SPREAD_CHANNELS) * SPREAD_CHANNELS
    instructions = outputs * (SPREAD_OUTPUT + SPREAD_PRODUCT * prod(what.w[1:]))
    nbytes = dtype_nbytes(what.dtype) * (prod(what.x) + prod(what.y))
    model = f"convolution {what.dtype}"
    return both(gpu, lambda machine: machine.issue_ns(instructions), flops, model=model, nbytes=nbytes, peak="f32")


def first_layer(gpu: Gpu, what: Conv, flops: float) -> Estimate:
    """The estimate for images of three channels and f16 (not bf16): channels are padded to four."""
    item = dtype_nbytes(what.dtype)
    wider = (what.x[0], FIRST_PADDED, *what.x[2:])

    def ns(machine: Machine) -> float:
        main = FIRST_NS[what.direction] + machine.issue_ns(FIRST_OUTPUT[what.direction] * prod(what.y))
        if what.layout == "nchw":
            return main + sum(converted_ns(machine, shape, item) for shape in (what.x, what.w, what.y))
        if what.x == wider:
            return main
        padded_nbytes = item * (prod(what.x) + prod(wider))
        fills = 2 * gpu.achieved.kernel_floor_ns + machine.memory_ns(item * prod(wider))
        return main + padded_nbytes / (machine.memory_gb_per_s * FIRST_PADDED_STREAM) + fills

    nbytes = item * (prod(what.x) + prod(what.w) + prod(what.y))
    return both(gpu, ns, flops, model=f"convolution {what.dtype}", kernels=5, nbytes=nbytes, peak=what.dtype)
