"""PyTorch's own kernels on images: resampling, pooling, depthwise convolutions."""

from __future__ import annotations

from math import ceil, prod

from profiles.kernel_names.kernel_name import KernelName
from profiles.models.kernels.sizes import covered, item_of, said
from profiles.models.machine import Machine, Model, overlapped
from profiles.signature import Kernel, Shape, elements


def per_thread(instructions: float, half: float | None = None) -> Model:
    """One output per thread. `half`: instructions for 16-bit items, if these need more."""

    def model(machine: Machine, what: Kernel, name: KernelName) -> float:
        threads, item = covered(what, 1), item_of(name)
        cost = half if half is not None and item < 4 else instructions
        nbytes = min(2 * threads, said(what) * 2 or 2 * threads) * item
        return overlapped(machine.memory_ns(nbytes), machine.issue_ns(cost * threads))

    return model


def planes(machine: Machine, what: Kernel, name: KernelName) -> float:
    """Bilinear interpolation, channels first: a thread goes through all images and channels, one after another."""
    planes = what.sizes[0][0] * what.sizes[0][1] if what.sizes and len(what.sizes[0]) > 1 else 1
    waves = ceil(covered(what, 1) / (machine.sms * machine.gpu.limits.threads_per_sm))
    return waves * planes * (350.0 if item_of(name) >= 4 else 250.0)


def _taps(what: Kernel) -> int:
    filters: Shape = min((shape for shape in what.sizes if len(shape) == 4 and shape[1] == 1), key=elements, default=())
    return prod(filters[2:]) if filters else 9


def depthwise(output: float, tap: float) -> Model:
    """PyTorch's own depthwise convolutions: an output, or a pixel's gradient, per thread."""

    def model(machine: Machine, what: Kernel, name: KernelName) -> float:
        return machine.issue_ns(covered(what, 1) * (output + tap * _taps(what)))

    return model


def depthwise_weights(machine: Machine, what: Kernel, name: KernelName) -> float:
    """A block for each weight sums over all pixels of the gradient."""
    gradient = what.sizes[0] if what.sizes and len(what.sizes[0]) == 4 else (1, 1, 32, 32)
    pixels = gradient[0] * prod(gradient[2:])
    return machine.issue_ns(prod(what.grid) * (52.0 * pixels + 450_000.0))
