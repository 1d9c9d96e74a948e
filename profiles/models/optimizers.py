"""multi_tensor_apply: foreach ops and fused optimizers, one thread block per chunk of 65,536 elements.

Blocks are as large as can be, so the last ones of a launch leave SMs idle, and a block cannot go faster than its
dependent rounds of loads: 65,536 elements by 512 threads of four elements are 32 rounds.
"""

from __future__ import annotations

import re
from math import prod

from profiles.kernel_names.kernel_name import KernelName, integer, item_nbytes, split_arguments
from profiles.models.machine import Machine, overlapped
from profiles.signature import Kernel, elements

CHUNK = 65536
UPDATE_INSTRUCTIONS = 120.0  # of an optimizer, per element: square roots and divisions, some in double
COPY_INSTRUCTIONS = 65.0  # views of a flat buffer are not aligned to vectors: element by element
ROUND_NS = 450.0  # a load's way to memory and back
UNHIDDEN = 0.25  # further loads of a round overlap all but this share


def applies(name: KernelName) -> bool:
    return name.base == "multi_tensor_apply_kernel"


def ns(machine: Machine, what: Kernel, name: KernelName) -> float:
    reads, writes, item = _traffic(name)
    blocks = prod(what.grid)
    count = float(CHUNK * blocks) * _fill(what)
    work = machine.issue_ns(count * _instructions(name))
    time = overlapped(machine.memory_ns(count * item * (reads + writes)), work) * machine.quantised(blocks)
    rounds = CHUNK / (max(prod(what.block), 1) * 4) * _fill(what)
    return max(time, rounds * ROUND_NS * (1 + UNHIDDEN * (reads + writes - 1)))


def _fill(what: Kernel) -> float:
    """How full chunks are on average: small tensors have a chunk of their own each."""
    counts = [elements(shape) for shape in what.sizes if shape]
    chunks = sum(-(-count // CHUNK) for count in counts)
    return sum(counts) / (chunks * CHUNK) if chunks and sum(counts) else 1.0


def _instructions(name: KernelName) -> float:
    functor = name.arguments[1] if len(name.arguments) > 1 else ""
    if "Fused" in functor or "Adam" in functor:
        return UPDATE_INSTRUCTIONS
    return COPY_INSTRUCTIONS if "Copy" in name.text else 10.0


def _traffic(name: KernelName) -> tuple[int, int, float]:
    """Reads and writes per element, and an element's bytes, from metadata and functor types."""
    metadata = name.arguments[0] if name.arguments else ""
    functor = name.arguments[1] if len(name.arguments) > 1 else ""
    head = functor.split("<")[0].rsplit("::", 1)[-1]
    arguments = split_arguments(functor[functor.index("<") :]) if "<" in functor else ()
    depth = _depth(metadata)
    item = item_nbytes(arguments[0] if arguments else functor)
    if "Fused" in head:
        # Parameters and state are written back, gradients only read.
        return depth, max(depth - 1, 1), item
    if "Norm" in head or "MaxFunctor" in head:
        return 1, 0, item
    if "Zero" in head:
        return 0, 1, item
    if head.startswith("Copy") and len(arguments) >= 2:
        # Copy<destination, source, ...>: half of the two items on each side.
        return 1, 1, (item_nbytes(arguments[0]) + item_nbytes(arguments[1])) / 2
    numbers = [integer(one, 0) for one in arguments if re.fullmatch(r"\d+", one)]
    return (numbers[1] if len(numbers) > 1 else max(depth - 1, 1)), 1, item


def _depth(metadata: str) -> int:
    """Lists of tensors: TensorListMetadata<2>, TensorListScalarListMetadata<float, 3>,
    FusedOptimizerTensorListMetadata<4>.
    """
    arguments = split_arguments(metadata[metadata.index("<") :]) if "<" in metadata else ()
    return max((integer(one, 0) for one in arguments), default=0) or 1
