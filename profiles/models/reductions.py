"""Reductions, softmax and normalisation: how often each kernel passes over its input, and what it computes per
element.

The number of passes follows from PyTorch's code (aten/src/ATen/native/cuda). Instructions per element were found from
rates on an H200.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from math import prod

from profiles.kernel_names.kernel_name import KernelName, integer, item_nbytes
from profiles.models.machine import Machine, overlapped
from profiles.signature import Kernel, Shape, elements

REDUCE_INSTRUCTIONS = 18.0  # per element of a long reduction; one more set of addresses per result
RESULT_INSTRUCTIONS = 100.0
GLOBAL_NS = 12_000.0  # a reduction across blocks: partial results to memory, a semaphore, the last block's second pass
WELFORD_INSTRUCTIONS = 85.0  # running mean and variance: a division per element
ROW_NS, ROUND_NS = 4_500.0, 1_000.0  # a row's two sums, and each round of loads
COLUMN_INSTRUCTIONS = 36.0
L1_SHARE = 0.85  # of shared memory and L1 together
GATHER_NS = 1_100.0  # one round of a single block that looks up targets, then their inputs


def applies(name: KernelName) -> bool:
    return any(re.search(pattern, name.base) for pattern, _ in RULES)


def ns(machine: Machine, what: Kernel, name: KernelName) -> float:
    return next(model for pattern, model in RULES if re.search(pattern, name.base))(machine, what, name)


def _largest(what: Kernel) -> Shape:
    return max(what.sizes, key=elements, default=())


def _count(what: Kernel, per_thread: int = 4) -> int:
    """Elements of the largest input; without sizes, what the grid covers."""
    return elements(_largest(what)) if any(what.sizes) else prod(what.grid) * prod(what.block) * per_thread


def _reduce(machine: Machine, what: Kernel, name: KernelName) -> float:
    operation = name.arguments[2] if len(name.arguments) > 2 else name.text
    item = item_nbytes(operation.split("<", 1)[-1].split(",")[0])
    vector = integer(name.arguments[1], 1) if len(name.arguments) > 1 else 1
    count = _count(what)
    across_blocks = what.grid[1] > 1
    results = what.grid[0] * (what.block[0] * vector if vector > 1 else what.block[1])
    if vector > 1 and not across_blocks:
        results *= what.block[1]
    results = min(results, count)
    issue = machine.issue_ns(REDUCE_INSTRUCTIONS * count + RESULT_INSTRUCTIONS * results)
    memory = machine.memory_ns((count + results) * item, blocks=prod(what.grid))
    return overlapped(memory, issue) + (GLOBAL_NS if across_blocks else 0.0)


def _passes(reads: float, writes: float, instructions: float = 10.0) -> Callable[[Machine, Kernel, KernelName], float]:
    def model(machine: Machine, what: Kernel, name: KernelName) -> float:
        count = _count(what)
        types = [one for one in name.arguments if not re.match(r"(true|false|\(|-?\d)", one)]
        item = item_nbytes(types[0] if types else "float")
        memory = machine.memory_ns(count * item * (reads + writes), blocks=prod(what.grid))
        return overlapped(memory, machine.issue_ns(count * instructions))

    return model


def _rows(inputs: int) -> Callable[[Machine, Kernel, KernelName], float]:
    """Normalisation, a block per row that reads its inputs twice and writes once.

    The second reading comes from L1 if the rows in flight fit it, else from L2, else from memory. Short rows are
    bound by the latency of their wave: two block-wide sums and the row's loads, one round after the other.
    """

    def model(machine: Machine, what: Kernel, name: KernelName) -> float:
        count = _count(what)
        rows, threads = prod(what.grid), prod(what.block)
        item = item_nbytes(name.arguments[0] if name.arguments else "float")
        resident = max(machine.gpu.limits.threads_per_sm // threads, 1)
        again = float(count * item * inputs)
        in_flight = again / rows * min(resident, max(rows // machine.sms, 1))
        time = machine.memory_ns(count * item * (inputs + 1))
        if in_flight > L1_SHARE * machine.gpu.limits.shared_nbytes_per_sm:
            fits = in_flight * machine.sms <= machine.gpu.memory.l2_nbytes
            time += again / (machine.l2_gb_per_s if fits else machine.memory_gb_per_s)
        rounds = count / max(rows * threads * 4, 1)
        return max(time, -(-rows // (machine.sms * resident)) * (ROW_NS + ROUND_NS * rounds))

    return model


def _column_sums(machine: Machine, what: Kernel, name: KernelName) -> float:
    """Normalisation's weight gradients: two inputs, as many blocks as there are groups of columns, often fewer than
    SMs.
    """
    item = item_nbytes(name.arguments[0] if name.arguments else "float")
    count, blocks = _count(what), prod(what.grid)
    busy = machine.issue_ns(COLUMN_INSTRUCTIONS * count) * machine.quantised(blocks)
    return overlapped(machine.memory_ns(count * item * 2), busy)


def _batch_norm(reads: float, writes: float, instructions: float) -> Callable[[Machine, Kernel, KernelName], float]:
    def model(machine: Machine, what: Kernel, name: KernelName) -> float:
        count = _count(what)
        types = [one for one in name.arguments if re.search(r"[Ff]loat|Half|double", one)]
        item = item_nbytes(types[0] if types else "float")
        time = overlapped(machine.memory_ns(count * item * (reads + writes)), machine.issue_ns(count * instructions))
        # Half-empty SMs do not hide the latency of their loads.
        filled = prod(what.grid) * prod(what.block) / (machine.sms * machine.gpu.limits.threads_per_sm)
        return float(time * max(1.0, min(filled, 1.0) ** -0.5))

    return model


def _lookup(round_ns: float) -> Callable[[Machine, Kernel, KernelName], float]:
    def model(machine: Machine, what: Kernel, name: KernelName) -> float:
        rows = max((shape[0] for shape in what.sizes if shape), default=prod(what.block))
        return -(-rows // (prod(what.grid) * prod(what.block))) * round_ns

    return model


RULES: tuple[tuple[str, Callable[[Machine, Kernel, KernelName], float]], ...] = (
    (r"^reduce_kernel$", _reduce),
    # Maximum, sum, output: three reads, where a row does not fit shared memory.
    (r"^cunn_SoftMaxForward$|^cunn_SpatialSoftMaxForward$", _passes(3, 1)),
    (r"^cunn_SoftMaxForward", _passes(1, 1)),
    (r"^cunn_SoftMaxBackward$|^cunn_SpatialSoftMaxBackward$", _passes(3.4, 1)),
    (r"^cunn_SoftMaxBackward", _passes(2, 1)),
    (r"^softmax_warp_forward", _passes(1, 1)),
    (r"^softmax_warp_backward", _passes(2, 1)),
    (r"^nll_loss_forward_reduce", _lookup(GATHER_NS)),
    (r"^nll_loss_backward_reduce", _lookup(GATHER_NS / 2)),
    (r"^nll_loss", _lookup(GATHER_NS)),
    (r"layer_norm_grad_input|LayerNormBackward", _rows(2)),
    (r"layer_norm|LayerNormForward|RowwiseMoments|rms_norm", _rows(1)),
    (r"GammaBetaBackward|cuComputeGradGammaBeta|cuComputePartGrad", _column_sums),
    (r"batch_norm_collect_statistics", _batch_norm(1, 0, WELFORD_INSTRUCTIONS)),
    (r"batch_norm_backward_reduce", _batch_norm(2, 0, 45.0)),
    (r"batch_norm_backward_elemt", _batch_norm(2, 1, 50.0)),
    (r"batch_norm_transform_input", _batch_norm(1, 1, 42.0)),
    (r"batch_norm|group_norm|instance_norm", _batch_norm(2, 1, 50.0)),
    (r"max_pool_forward|max_pool2d_with_indices", _passes(1, 1.25, 135.0)),
    (r"max_pool_backward", _passes(0, 1, 300.0)),
    (r"avg_pool|adaptive_average_pool|upsample", _passes(1, 1, 60.0)),
)
