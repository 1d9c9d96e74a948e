"""Kernels that arrive by name: which model prices which. What none of them knows is priced by its grid."""

from __future__ import annotations

import re
from math import prod

from profiles.descriptions.gpu import Gpu
from profiles.kernel_names.kernel_name import KernelName, read_name
from profiles.models import attention, elementwise, optimizers, reductions
from profiles.models.machine import Estimate, Machine, Model, both, overlapped
from profiles.models.matrix import grouped
from profiles.models.movement import RULES as MOVEMENT
from profiles.signature import Kernel, elements

# An unknown kernel: every thread reads two and writes one vector of 16 bytes, or does this much arithmetic.
UNKNOWN_NBYTES = 48.0
UNKNOWN_INSTRUCTIONS = 100.0


def kernel(gpu: Gpu, what: Kernel) -> Estimate:
    name = read_name(what.name)
    if problem := attention.named(what, name):
        return both(
            gpu, lambda machine: attention.attention_ns(machine, problem), attention.flops(problem), model="attention"
        )
    if "grouped" in what.op and (found := grouped(gpu, what, name)) and "device_kernel" in name.text:
        return found
    model = _model_of(name)
    if model is None:
        return both(gpu, lambda machine: unknown_ns(machine, what))
    return both(gpu, lambda machine: model(machine, what, name))


def _model_of(name: KernelName) -> Model | None:
    if elementwise.applies(name):
        return elementwise.ns
    if optimizers.applies(name):
        return optimizers.ns
    if reductions.applies(name):
        return reductions.ns
    return next((model for pattern, model in MOVEMENT if re.search(pattern, name.base)), None)


def unknown_ns(machine: Machine, what: Kernel) -> float:
    """By grid and block; never more traffic than twice all that its op takes, if that is known and large."""
    threads = prod(what.grid) * prod(what.block)
    nbytes = UNKNOWN_NBYTES * threads
    said = 8.0 * sum(elements(shape) for shape in what.sizes if shape)
    if said > 0:
        nbytes = min(nbytes, 2 * said)
    return overlapped(
        machine.memory_ns(nbytes, blocks=prod(what.grid)), machine.issue_ns(UNKNOWN_INSTRUCTIONS * threads)
    )
