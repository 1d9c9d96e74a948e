"""Models multi_tensor_apply: foreach ops and fused optimizers, one thread block per chunk of 65,536 elements.

All blocks of a launch are resident at once and share the memory's bandwidth, so that their number need not be a
multiple of the SMs'. A block goes through dependent rounds of loads: 65,536 elements by 512 threads of four elements
are 32 rounds. Too few loads are in flight to hide them, so the rounds, the bytes and the instructions add up in part.
An op launches its tensors in groups; which chunks a launch has follows from the op's sizes and the launch's grid.
"""

from __future__ import annotations

import re
from functools import lru_cache
from math import ceil, prod

from profiles.kernel_names.kernel_name import KernelName, integer, item_nbytes, split_arguments
from profiles.models.machine import Machine, overlapped
from profiles.signature import Kernel, Shape, elements

CHUNK = 65536
MOST_BLOCKS = 320  # blocks of a launch at most
MOST_TENSORS = (110, 64, 48, 36, 30)  # tensors of a launch at most, by the number of lists
UPDATE_INSTRUCTIONS = 101.0  # an optimizer's, per element: square roots and divisions, some in double
FUNCTOR_INSTRUCTIONS = 140.0  # those of Transformer Engine's and Apex's Adam, per element
CAPTURABLE_INSTRUCTIONS = 330.0  # those where the step is read from the device: every thread computes its powers
INSTRUCTIONS = 9.3
# A block finds its tensor's place; and computes the powers of the step in double.
START_NS, UPDATE_START_NS = 700.0, 2_000.0
ROUND_NS = 380.0  # a load's way to memory and back
READ_ALONE = 0.5  # share of these waits that is left where nothing is written that a round's loads could follow
UNHIDDEN = 0.11  # further loads of a round overlap all but this share
ADD_UP = 1.58  # exponent that joins the times: lower than of kernels with more loads in flight


def applies(name: KernelName) -> bool:
    return name.base == "multi_tensor_apply_kernel"


def ns(machine: Machine, what: Kernel, name: KernelName) -> float:
    reads, writes, item = _traffic(name)
    blocks = prod(what.grid)
    count, longest = _elements(what.sizes, blocks, _depth(name.arguments[0] if name.arguments else ""))
    work = machine.issue_ns(count * _instructions(name))
    rounds = longest / (max(prod(what.block), 1) * 4) if reads else 0.0
    waits = rounds * machine.loaded_ns(ROUND_NS) * (1 + UNHIDDEN * (reads + writes - 1))
    if not writes:
        waits *= READ_ALONE
    waits += UPDATE_START_NS if _is_update(name) else START_NS
    traffic = machine.streamed_ns(count * item * (reads + writes), blocks=blocks)
    return overlapped(traffic, work, waits, exponent=ADD_UP)


def _elements(sizes: tuple[Shape, ...], blocks: int, depth: int) -> tuple[float, float]:
    """The elements of a launch of so many blocks, and of its longest block. Without sizes, chunks are taken as full."""
    counts = _first_list(sizes, depth)
    if not any(sizes) and len(sizes) < blocks:
        counts = ()  # lists whose sizes the sender does not know, not tensors without dimensions
    if not counts:
        return float(CHUNK * blocks), float(CHUNK)
    launches = _launches(counts, MOST_TENSORS[min(depth, len(MOST_TENSORS)) - 1])
    same = [(count, longest) for size, count, longest in launches if size == blocks]
    if not same:
        full = sum(counts) / (CHUNK * sum(max(ceil(count / CHUNK), 1) for count in counts))
        return CHUNK * blocks * full, float(min(max(counts), CHUNK))
    return sum(count for count, _ in same) / len(same), sum(longest for _, longest in same) / len(same)


def _first_list(sizes: tuple[Shape, ...], depth: int) -> tuple[int, ...]:
    """An op's sizes are those of its lists one after another; scalars and steps have no dimension."""
    shapes = tuple(shape for shape in sizes if shape) or sizes
    for lists in (depth, depth - 1):
        length = len(shapes) // lists if lists > 1 else 0
        if length and shapes[:length] * lists == shapes:
            shapes = shapes[:length]
            break
    return tuple(elements(shape) for shape in shapes)


@lru_cache(maxsize=256)
def _launches(counts: tuple[int, ...], most_tensors: int) -> tuple[tuple[int, float, float], ...]:
    """The blocks, the elements and the longest block of each launch, as multi_tensor_apply divides a list of
    tensors.
    """
    found: list[tuple[int, float, float]] = []
    blocks = tensors = 0
    total = longest = 0.0
    for count in counts:
        if not count:
            continue
        tensors += 1
        chunks = ceil(count / CHUNK)
        for chunk in range(chunks):
            part = min(CHUNK, count - chunk * CHUNK)
            blocks, total, longest = blocks + 1, total + part, max(longest, part)
            full = tensors == most_tensors and chunk == chunks - 1
            if full or blocks == MOST_BLOCKS:
                found.append((blocks, total, longest))
                # A tensor whose chunks are not all launched begins the next launch.
                blocks, total, longest, tensors = 0, 0.0, 0.0, 0 if chunk == chunks - 1 else 1
    if blocks:
        found.append((blocks, total, longest))
    return tuple(found)


def _instructions(name: KernelName) -> float:
    if "AdamCapturable" in name.text:
        return CAPTURABLE_INSTRUCTIONS
    if "AdamFunctor" in name.text:
        return FUNCTOR_INSTRUCTIONS
    return UPDATE_INSTRUCTIONS if _is_update(name) else INSTRUCTIONS


def _is_update(name: KernelName) -> bool:
    return len(name.arguments) > 1 and "Adam" in name.arguments[1]


def _traffic(name: KernelName) -> tuple[int, int, float]:
    """Reads and writes per element, and an element's bytes, from metadata and functor types."""
    metadata = name.arguments[0] if name.arguments else ""
    functor = name.arguments[1] if len(name.arguments) > 1 else ""
    head = functor.split("<")[0].rsplit("::", 1)[-1]
    arguments = split_arguments(functor[functor.index("<") :]) if "<" in functor else ()
    depth = _depth(metadata)
    item = item_nbytes(arguments[0] if arguments else functor)
    if "Adam" in head and "Fused" not in head and len(arguments) > 2:
        # Transformer Engine's and Apex's, AdamFunctor<parameter, gradient, full, ...>: gradient, parameter and two
        # moments; where there is a fifth list, of the parameters in full, the parameter is only written.
        parameter, gradient, full = (item_nbytes(one) for one in arguments[:3])
        written = parameter + full * (depth - 2)
        read = gradient + full * (depth - 2) + (parameter if depth < 5 else 0.0)
        count = 2 * depth - (1 if depth < 5 else 2)
        return depth, count - depth, (read + written) / count
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
    reads = numbers[1] if len(numbers) > 1 else max(depth - 1, 1)
    # addcmul: optimizers multiply a gradient by itself.
    return (reads - 1 if head.startswith("PointwiseOp") and "multiplies" in name.text and reads > 2 else reads), 1, item


def _depth(metadata: str) -> int:
    """Lists of tensors: TensorListMetadata<2>, TensorListScalarListMetadata<float, 3>,
    FusedOptimizerTensorListMetadata<4>.
    """
    arguments = split_arguments(metadata[metadata.index("<") :]) if "<" in metadata else ()
    return max((integer(one, 0) for one in arguments), default=0) or 1
