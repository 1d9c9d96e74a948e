"""Chooses the model for kernels that arrive by name. What none of them knows is priced by its operands."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import lru_cache
from math import prod

from profiles.descriptions.gpu import Gpu
from profiles.kernel_names.kernel_name import KernelName, read_name
from profiles.models.kernels import (
    chains,
    elementwise,
    movement,
    optimizers,
    quantized,
    reductions,
    transformer_engine,
    vllm,
)
from profiles.models.kernels.operands import operands
from profiles.models.machine import Estimate, Machine, Model, both, overlapped
from profiles.models.products import attention, paged
from profiles.models.products.matrix import grouped, scaled
from profiles.signature import Grouped, Kernel, Sized, Strided, Triton, elements

BY_GRID, BY_OPERANDS = "by grid", "by operands"
CHAINS = chains.FAMILIES | {"resampling"}  # there threads go through planes, or wait for each other's additions
TURNED = "element-wise, turned"
# An unknown kernel: every thread reads two and writes one vector of 16 bytes, or does this much arithmetic.
UNKNOWN_NBYTES = 48.0
UNKNOWN_INSTRUCTIONS = 100.0


def kernel(gpu: Gpu, what: Kernel | Grouped) -> Estimate:
    name = read_name(what.name)
    if "grouped" in what.op and "device_kernel" in name.text and (found := grouped(gpu, what, name)):
        return found
    if "scaled_mm" in what.op and "device_kernel" in name.text and (found := scaled(gpu, what)):
        return found
    if isinstance(what, Grouped):
        what = Kernel(what.name, what.grid, what.block, what.shared_nbytes, what.op, what.sizes)
    if cached := paged.kernel(gpu, what, name):
        return cached
    if problem := attention.named(what, name):
        return both(
            gpu,
            lambda machine: attention.attention_ns(machine, problem),
            attention.flops(problem),
            model=f"attention, {problem.backend}",
            peak=attention.peak_of(problem.dtype),
        )
    if own := vllm.kernel(gpu, what, name):
        return own
    if isinstance(what, Sized) and (known := transformer_engine.estimate(gpu, what, name)):
        return known
    rule = _model_of(name)
    if rule is None:
        return by_grid(gpu, what, f"no model knows the kernel {name.base}")
    family, model = rule
    if isinstance(what, Strided):
        family = TURNED
    blocks = prod(what.grid)
    found = both(gpu, lambda machine: max(model(machine, what, name), machine.dealt_out_ns(blocks)), model=family)
    return replace(found, is_chain=family in CHAINS)


@lru_cache(maxsize=4096)
def _model_of(name: KernelName) -> tuple[str, Model] | None:
    """The family that a kernel belongs to, and its model."""
    if elementwise.applies(name):
        return elementwise.family(name), elementwise.ns
    if optimizers.applies(name):
        return "optimizer", optimizers.ns
    rules = (*chains.RULES, *reductions.RULES, *movement.RULES, *quantized.RULES)
    return next(((family, model) for pattern, family, model in rules if re.search(pattern, name.base)), None)


def by_grid(gpu: Gpu, what: Kernel | Triton, why: str) -> Estimate:
    """A kernel that no model knows. Without its operands' sizes its grid is all there is to go by, and a kernel may go
    through any amount of data with few blocks.
    """
    if isinstance(what, Sized) and (found := operands(what)).nbytes:
        estimate = both(gpu, lambda machine: _by_operands_ns(machine, what, found.total), model=BY_OPERANDS)
        return replace(estimate, unknown=why, nbytes=found.total, at_least=found.at_least)
    return replace(both(gpu, lambda machine: _unknown_ns(machine, what), model=BY_GRID), unknown=why, at_least=True)


def _by_operands_ns(machine: Machine, what: Kernel, nbytes: float) -> float:
    """The time of an unknown kernel by its operands: every operand is read or written once, and every thread does so
    much arithmetic.
    """
    issue = machine.issue_ns(UNKNOWN_INSTRUCTIONS * prod(what.grid) * prod(what.block))
    return overlapped(machine.memory_ns(nbytes, blocks=prod(what.grid)), issue)


def _unknown_ns(machine: Machine, what: Kernel | Triton) -> float:
    """The time of an unknown kernel by grid and block; never more traffic than twice all that its op takes, if that is
    known and large.
    """
    threads = prod(what.grid) * prod(what.block)
    nbytes = UNKNOWN_NBYTES * threads
    said = 8.0 * sum(elements(shape) for shape in what.sizes if shape)
    if said > 0:
        nbytes = min(nbytes, 2 * said)
    return overlapped(
        machine.memory_ns(nbytes, blocks=prod(what.grid)), machine.issue_ns(UNKNOWN_INSTRUCTIONS * threads)
    )
