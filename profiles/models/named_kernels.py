"""Kernels that arrive by name: which model prices which. What none of them knows is priced by its grid."""

from __future__ import annotations

import re
from math import prod

from profiles.descriptions.gpu import Gpu
from profiles.kernel_names.kernel_name import KernelName, read_name
from profiles.models import elementwise, optimizers, reductions
from profiles.models.attention import Problem, attention_ns
from profiles.models.attention import flops as attention_flops
from profiles.models.machine import Estimate, Machine, both, overlapped
from profiles.models.movement import RULES as MOVEMENT
from profiles.models.movement import Model
from profiles.signature import Kernel, elements

# An unknown kernel: every thread reads two and writes one vector of 16 bytes, or does this much arithmetic.
UNKNOWN_NBYTES = 48.0
UNKNOWN_INSTRUCTIONS = 100.0


def kernel(gpu: Gpu, what: Kernel) -> Estimate:
    name = read_name(what.name)
    if problem := _attention(what, name):
        return both(gpu, lambda machine: attention_ns(machine, problem), attention_flops(problem))
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


def _attention(what: Kernel, name: KernelName) -> Problem | None:
    """PyTorch's own FlashAttention and memory-efficient kernels: q, k, v lead the op's sizes, the mask is in the
    template.
    """
    if found := re.match(r"flash_(fwd|bwd_dq_dk_dv_loop)_\w*kernel", name.base):
        direction, backend = ("fwd" if found[1] == "fwd" else "bwd"), "flash"
    elif found := re.match(r"fmha_cutlass(F|B)", name.base):
        direction, backend = ("fwd" if found[1] == "F" else "bwd"), "efficient"
    else:
        return None
    shapes = [shape for shape in what.sizes if len(shape) == 4]
    if direction == "bwd" and len(shapes) >= 4:
        shapes = shapes[1:]  # the gradient comes first
    if len(shapes) < 3:
        return None
    q, k, v = shapes[:3]
    # Ops that name the kernel take (batch, heads, length, depth), the raw ones (batch, length, heads, depth).
    if "scaled_dot_product" not in what.op:
        q, k, v = ((one[0], one[2], one[1], one[3]) for one in (q, k, v))
    flags = [one == "true" for one in name.arguments[1:] if one in ("true", "false")]
    dropout, causal = (flags[0], flags[1]) if backend == "flash" and len(flags) > 1 else (False, False)
    dtype = "f16" if "half_t" in name.text or "f16" in name.base else "bf16"
    return Problem(direction, q[0], q[1], q[2], k[2], q[3], v[3], dtype, causal, dropout, backend)
