"""Models PyTorch's own kernels on images: resampling, pooling, depthwise convolutions."""

from __future__ import annotations

from math import ceil, prod

from profiles.kernel_names.kernel_name import KernelName
from profiles.models.kernels.sizes import covered, item_of, said
from profiles.models.machine import Machine, Model, overlapped
from profiles.signature import Kernel, Scaled, Shape, elements

# Instructions for an atomic addition of four neighbours, and for each that the same pixel gets.
ADDED, MET = 320.0, 23.7
ADDED_HALF, MET_HALF = 570.0, 100.0  # the same for 16 bits: compared and swapped until it holds
ADDED_LAST, MET_LAST = 418.0, 2.1  # channels last: two of 16 bits at once, neighbours are other addresses
FAR_APART = 3.0  # where the image becomes smaller, no two meet, and caches do not help
MET_ADD_UP = 1.5
# Instructions of a pixel and a column of col2im, and of a place of im2col.
FOLDED, FOLDED_COLUMN, UNFOLDED, UNFOLDED_START_NS = 500.0, 265.0, 890.0, 3_500.0
USUAL_TAPS = 9
WARP = 32
# Instructions of a pixel's gradient and of a tap, by what a kernel knows: side of the filter and stride (0: neither).
DEPTHWISE_FIXED = {1: (540.0, 2.9), 2: (446.0, 11.9)}
DEPTHWISE_BACK = {0: (243.0, 98.8), 1: (254.0, 23.8), 2: (368.0, 28.5)}
# Gradients of weights: instructions of a pixel, of a thread and of each of its images; a turn of the loop waits.
WEIGHT_PIXEL, WEIGHT_THREAD, WEIGHT_IMAGE, WEIGHT_TURN_NS, WEIGHT_START_NS = 44.2, 200.0, 88.0, 160.0, 2_000.0
VOLUME_PIXEL, VOLUME_START = 92.0, 1.85e6


def per_thread(instructions: float, half: float | None = None) -> Model:
    """The model of kernels with one output per thread. `half`: instructions for 16-bit items, if these need more."""

    def model(machine: Machine, what: Kernel, name: KernelName) -> float:
        threads, item = covered(what, 1), item_of(name)
        cost = half if half is not None and item < 4 else instructions
        nbytes = min(2 * threads, said(what) * 2 or 2 * threads) * item
        return overlapped(machine.memory_ns(nbytes), machine.issue_ns(cost * threads))

    return model


def planes(whole: float, half: float) -> Model:
    """The model of interpolation, channels first: a thread goes through all images and channels, one after another.
    `whole`, `half`: nanoseconds of one of them, of items of 32 and of 16 bits, for a block that has an SM for itself.
    """

    def model(machine: Machine, what: Kernel, name: KernelName) -> float:
        planes = what.sizes[0][0] * what.sizes[0][1] if what.sizes and len(what.sizes[0]) > 1 else 1
        return ceil(prod(what.grid) / machine.sms) * planes * (whole if item_of(name) >= 4 else half)

    return model


def gathered(machine: Machine, what: Kernel, name: KernelName) -> float:
    """The time of the gradient of nearest neighbours: each pixel adds up its own pixels of the larger image."""
    count = elements(what.sizes[0]) if what.sizes and what.sizes[0] else covered(what, 1)
    return machine.memory_ns(count * item_of(name))


def spread_wide(whole: float, half: float) -> Model:
    """The model of gradients that add to 8 or 16 neighbours: instructions for each pixel of the larger image."""

    def model(machine: Machine, what: Kernel, name: KernelName) -> float:
        count = elements(what.sizes[0]) if what.sizes and what.sizes[0] else covered(what, 1)
        return machine.issue_ns(count * (whole if item_of(name) >= 4 else half))

    return model


def spread(machine: Machine, what: Kernel, name: KernelName) -> float:
    """The time of the gradient of a bilinear interpolation: four atomic additions for each pixel of the larger image.
    All additions to one pixel of the smaller one wait for each other.
    """
    count = elements(what.sizes[0]) if what.sizes and what.sizes[0] else covered(what, 1)
    meet = prod(what.after) / prod(what.before) if isinstance(what, Scaled) else 4.0
    half, channels = item_of(name) < 4, what.sizes[0][1] if what.sizes and len(what.sizes[0]) > 1 else 1
    if "nhwc" in name.base:
        alone, added = ADDED_LAST, MET_LAST if channels % 2 == 0 else MET
    else:
        alone, added = (ADDED_HALF, MET_HALF) if half else (ADDED, MET)
    if meet < 1:
        alone *= FAR_APART
    return overlapped(machine.issue_ns(alone * count), machine.issue_ns(added * meet * count), exponent=MET_ADD_UP)


def _taps(what: Kernel) -> int:
    filters: Shape = min((shape for shape in what.sizes if len(shape) > 2 and shape[1] == 1), key=elements, default=())
    return prod(filters[2:]) if filters else 9


def depthwise(output: float, tap: float) -> Model:
    """The model of PyTorch's own depthwise convolutions: an output, or a pixel's gradient, per thread."""

    def model(machine: Machine, what: Kernel, name: KernelName) -> float:
        return machine.issue_ns(covered(what, 1) * (output + tap * _taps(what)))

    return model


def depthwise_gradient(output: float, tap: float) -> Model:
    """The model of the data's gradient where threads go through more than one pixel each: the second operand is the
    input of the convolution.
    """

    def model(machine: Machine, what: Kernel, name: KernelName) -> float:
        count = elements(what.sizes[1]) if len(what.sizes) > 1 and what.sizes[1] else covered(what, 1)
        return machine.issue_ns(count * (output + tap * _taps(what)))

    return model


def depthwise_back(machine: Machine, what: Kernel, name: KernelName) -> float:
    """The time of a kernel with a thread for each pixel of the gradient; where it does not know the stride, each tap
    divides by it.
    """
    side, stride = (*(int(one) for one in name.arguments if one.isdigit()), 0, 0)[:2]
    output, tap = (DEPTHWISE_FIXED if side and stride in DEPTHWISE_FIXED else DEPTHWISE_BACK).get(
        stride, DEPTHWISE_BACK[0]
    )
    return machine.issue_ns(covered(what, 1) * (output + tap * _taps(what)))


def depthwise_weights(machine: Machine, what: Kernel, name: KernelName) -> float:
    """The time of a kernel with a block for each weight, whose warps take an image each, 32 pixels at a time. Few
    blocks wait for their loads.
    """
    gradient = what.sizes[0] if what.sizes and len(what.sizes[0]) > 2 else (1, 1, 32, 32)
    blocks, threads = prod(what.grid), prod(what.block)
    images = ceil(gradient[0] / max(threads // WARP, 1))
    turns = images * ceil(prod(gradient[2:]) / WARP)
    thread = WEIGHT_PIXEL * turns + WEIGHT_THREAD + WEIGHT_IMAGE * images
    at_once = machine.sms * min(machine.gpu.limits.threads_per_sm // threads, machine.gpu.limits.blocks_per_sm)
    waits = ceil(blocks / max(at_once, 1)) * (turns * WEIGHT_TURN_NS + WEIGHT_START_NS)
    return max(machine.issue_ns(blocks * threads * thread), waits)


def volume_weights(machine: Machine, what: Kernel, name: KernelName) -> float:
    """The time of a kernel with a block for each weight, which sums over all pixels of the gradient, of three
    dimensions.
    """
    gradient = what.sizes[0] if what.sizes and len(what.sizes[0]) > 3 else (1, 1, 32, 32)
    pixels = gradient[0] * prod(gradient[2:])
    return machine.issue_ns(prod(what.grid) * (VOLUME_PIXEL * pixels + VOLUME_START))


def sampled(instructions: float, channel_ns: float, half_ns: float) -> Model:
    """The model of grid_sample: a thread for each place goes through the channels, one after another. `instructions`:
    for each of its items; `channel_ns`, `half_ns`: of a channel, for blocks that have an SM for themselves.
    """

    def model(machine: Machine, what: Kernel, name: KernelName) -> float:
        threads = covered(what, 1)
        channels = what.sizes[0][1] if what.sizes and len(what.sizes[0]) > 1 else 1
        waits = channels * (half_ns if item_of(name) < 4 else channel_ns)
        return max(machine.issue_ns(instructions * threads * channels), waits)

    return model


def folded(machine: Machine, what: Kernel, name: KernelName) -> float:
    """The time of col2im: a thread for each pixel adds the columns that have it."""
    threads, columns = covered(what, 1), said(what)
    memory = machine.memory_ns((threads + columns) * item_of(name))
    return overlapped(memory, machine.issue_ns(FOLDED * threads + FOLDED_COLUMN * columns))


def unfolded(machine: Machine, what: Kernel, name: KernelName) -> float:
    """The time of im2col: a thread for each place of a filter of 3x3, which the sizes do not tell."""
    threads = covered(what, 1)
    memory = machine.memory_ns(threads * USUAL_TAPS * item_of(name))
    return UNFOLDED_START_NS + overlapped(memory, machine.issue_ns(UNFOLDED * threads))
