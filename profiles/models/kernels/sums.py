"""Models reduce_kernel of PyTorch: sums, means, norms, extremes, moments over any dimensions of a tensor.

What a thread does follows from the launch (setReduceConfig in aten/src/ATen/native/cuda/Reduce.cuh): where the
innermost dimension is reduced, a warp goes along it and, if it is long, the block's warps share it; else each lane has
results of its own and the block's rows share what is added. Blocks along y share a result further; the last one adds
what they left. Rounds of loads, instructions and bytes overlap in part. Figures: laboratory/notes/kernel-models.md.
"""

from __future__ import annotations

import re
from enum import Enum, auto
from functools import lru_cache
from itertools import combinations
from math import ceil, prod
from typing import NamedTuple

from profiles.kernel_names.kernel_name import KernelName, integer, item_nbytes
from profiles.models.machine import Machine, overlapped
from profiles.signature import Kernel, Shape, elements

FARTHEST_NBYTES = 2**31  # offsets of one launch are smaller
LOADS = 4  # loads of a thread in a round: PyTorch's vt0
MOST_BLOCKS = 32  # blocks of an SM at most
FEWEST_OF_THREAD, MOST_OF_THREAD = 16, 256  # items for each, from which on the warps of a block share a result
START_NS, ADD_UP, STREAM = 1_400.0, 2.32, 0.94
ALONG, ACROSS, SCATTERED = 8.3, 16.2, 54.8  # instructions an element: `Way`
COMPARED = 3.2  # times as many where places are kept or moments are
LANE, LANE_PLACES, LANE_OTHERS = 238.0, 475.0, 472.0  # instructions of a thread: its start, the tree of its warp
ROUND_NS, ROUND_PLACES_NS, ROUND_MOMENTS_NS = 82.0, 486.0, 922.0
ROUND_ACROSS_NS, ROUND_SCATTERED_NS = 354.0, 590.0
FIRST_NS = 380.0  # before the first of these rounds
# Between blocks: a semaphore; a round of the last one through what each has left, slower where it is not full.
SHARED_NS, SHARED_ROUND_NS, SHARED_PART_NS, SHARED_MOMENTS_NS = 3_310.0, 235.0, 420.0, 850.0


class Way(Enum):
    ALONG = auto()
    SCATTERED = auto()
    """The reduction goes along the inner dimension and others that are not next to it: no vectors are loaded, each
    place is computed.
    """
    ACROSS = auto()


class Division(NamedTuple):
    results: int
    threads: int
    """The number of threads that share a result."""
    way: Way
    is_full: bool = True
    """True if the last block has as many results as the others."""


def ns(machine: Machine, what: Kernel, name: KernelName) -> float:
    operation = name.arguments[2] if len(name.arguments) > 2 else name.text
    item = item_nbytes(operation.split("<", 1)[-1].split(",")[0])
    vector = integer(name.arguments[1], 1) if len(name.arguments) > 1 else 1
    shape = _part(max(what.sizes, key=elements, default=()), item)
    if not any(what.sizes):
        shape = (prod(what.grid) * prod(what.block) * LOADS,)
    count = max(elements(shape), 1)
    results, threads, way, is_full = _division(shape, what.grid, what.block, vector, what.op)
    blocks, of_block = prod(what.grid), prod(what.block)
    places, moments = "ArgM" in operation, "Welford" in operation
    kept = places or moments or bool(re.search("MaxOps|MinOps", operation))
    waves = max(blocks / (machine.sms * min(max(machine.gpu.limits.threads_per_sm // of_block, 1), MOST_BLOCKS)), 1.0)
    round_ns = ROUND_MOMENTS_NS if moments else ROUND_PLACES_NS if kept else ROUND_NS
    if way is not Way.ALONG:
        round_ns = ROUND_ACROSS_NS if way is Way.ACROSS else ROUND_SCATTERED_NS
    per_element = {Way.ALONG: ALONG, Way.SCATTERED: SCATTERED, Way.ACROSS: ACROSS}[way] * (COMPARED if kept else 1.0)
    lane = LANE_PLACES if places else LANE_OTHERS if kept else LANE
    rounds = ceil(count / results / threads / LOADS)
    waits = waves * (rounds * round_ns + (0.0 if way is Way.ALONG else FIRST_NS))
    work = machine.issue_ns(count * per_element + blocks * of_block * lane)
    memory = machine.memory_ns((count + results) * item, blocks=blocks) / STREAM
    time = START_NS + overlapped(memory, work, machine.loaded_ns(waits), exponent=ADD_UP)
    if what.grid[1] > 1:
        time += SHARED_NS
        if way is Way.ACROSS:
            of_round = SHARED_MOMENTS_NS if moments else SHARED_ROUND_NS if is_full else SHARED_PART_NS
            time += ceil(what.grid[1] / what.block[1]) * of_round
    return time


def _part(shape: Shape, item: float) -> Shape:
    """The shape that one launch reduces.

    Where an input has 2 GiB or more, PyTorch halves its outermost dimension until offsets in bytes are integers of 32
    bits (TensorIterator's with_32bit_indexing), and launches a kernel for each part.
    """
    sizes = list(shape)
    while prod(sizes) * item >= FARTHEST_NBYTES and max(sizes) > 1:
        outermost = next(at for at, size in enumerate(sizes) if size > 1)
        sizes[outermost] = ceil(sizes[outermost] / 2)
    return tuple(sizes)


@lru_cache(maxsize=4096)
def _division(shape: Shape, grid: tuple[int, ...], block: tuple[int, ...], vector: int, op: str = "") -> Division:
    """Divides a reduction among threads. The launch does not say which dimensions are reduced, but how many results
    blocks of this grid have. Where that leaves a choice, outer dimensions are kept, but in sums of pictures the
    channels, as in gradients of biases.
    """
    count = max(elements(shape), 1)
    sizes = tuple(size for size in shape if size > 1)
    if vector > 1:
        of_block = block[0] * vector
        kept = {prod(sizes[begin:end]) for end in range(1, len(sizes) + 1) for begin in range(end)}
        fitting = [one for one in kept if ceil(one / of_block) == grid[0]]
        results = max(fitting, default=min(grid[0] * of_block, count))
        return Division(results, block[1] * grid[1], Way.ACROSS, results % of_block == 0)
    found: list[tuple[int, int, int, Way, bool]] = []
    for number in range(len(sizes)):
        for places in combinations(range(len(sizes)), number):
            results = prod(sizes[at] for at in places)
            channels = op == "aten::sum" and len(sizes) == 4 and places == (1,)
            first, last = places == tuple(range(number)), places == tuple(range(len(sizes) - number, len(sizes)))
            if number and places[-1] == len(sizes) - 1:
                if ceil(results / block[0]) == grid[0]:
                    found.append((int(not last), results, block[1] * grid[1], Way.ACROSS, results % block[0] == 0))
            elif results == grid[0] and count / results / block[0] >= min(FEWEST_OF_THREAD * block[1], MOST_OF_THREAD):
                way = Way.ALONG if first else Way.SCATTERED
                found.append((-1 if channels else int(not first), results, block[0] * block[1] * grid[1], way, True))
            elif ceil(results / block[1]) == grid[0] and grid[1] == 1:
                found.append((int(not first), results, block[0], Way.ALONG if first else Way.SCATTERED, True))
    if found:
        return Division(*min(found, key=lambda one: one[:2])[1:])
    shared = grid[1] > 1
    results = min(grid[0] * (1 if shared else block[1]), count)
    return Division(results, block[0] * (block[1] * grid[1] if shared else 1), Way.ALONG)
