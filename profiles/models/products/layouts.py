"""cuDNN's kernels that turn tensors between channels first and last, and pad channels."""

from __future__ import annotations

from math import prod

from profiles.models.machine import Machine, overlapped
from profiles.signature import Shape

LAYOUT_INSTRUCTIONS = 58.0  # per element of a layout conversion
LAYOUT_CHANNELS = 32  # channels of a tile
LAYOUT_STREAM = 0.97  # share of the streaming bandwidth
WIDENED_STREAM = 0.41  # where channels are padded only
LAYOUT_NS = 900.0  # beside the floor of a launch


def converted_ns(machine: Machine, shape: Shape, item: float, multiple: int = 0, *, turned: bool = True) -> float:
    """A kernel that transposes between channels first and last, or pads channels, with the fill of its target."""
    pixels, channels = shape[0] * prod(shape[2:]), shape[1]
    width = -(-channels // multiple) * multiple if multiple else channels
    rows = -(-channels // LAYOUT_CHANNELS) * LAYOUT_CHANNELS
    nbytes = item * pixels * (channels + width)
    fill = machine.memory_ns(item * pixels * width) if width != channels else 0.0
    if not turned:
        return machine.gpu.achieved.kernel_floor_ns + LAYOUT_NS + fill + machine.memory_ns(nbytes) / WIDENED_STREAM
    work = overlapped(machine.memory_ns(nbytes) / LAYOUT_STREAM, machine.issue_ns(LAYOUT_INSTRUCTIONS * pixels * rows))
    return machine.gpu.achieved.kernel_floor_ns + LAYOUT_NS + fill + work
