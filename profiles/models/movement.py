"""Kernels that move data by index: concatenation, gathers, embeddings, sorting, random numbers. Bytes over streaming
rate x efficiency.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod

from profiles.kernel_names.kernel_name import KernelName, integer, item_nbytes
from profiles.models.machine import Machine, overlapped
from profiles.signature import Kernel, elements

PHILOX_INSTRUCTIONS = 60.0  # one random number, compared or scaled
SEGMENT_INSTRUCTIONS = 250.0  # an embedding's gradient, per element: look-ups of segment borders, most blocks find none
PASS_NS = 4_500.0  # a sweep of CUB over few elements: look-back through the blocks before

Model = Callable[[Machine, Kernel, KernelName], float]


def _said(what: Kernel) -> int:
    return sum(elements(shape) for shape in what.sizes if shape)


def _covered(what: Kernel, per_thread: int) -> int:
    return prod(what.grid) * prod(what.block) * per_thread


def _cat(machine: Machine, what: Kernel, name: KernelName) -> float:
    """Every input is read and written once. Aligned kernels go in 16-byte vectors over a grid that may stride."""
    item = item_nbytes(name.arguments[0] if name.arguments else "float")
    count = _said(what) or _covered(what, 4)
    return machine.memory_ns(2 * count * item) / 0.92


def _vector_gather(machine: Machine, what: Kernel, name: KernelName) -> float:
    """One vector per thread, read and written."""
    vector = integer(name.arguments[0], 16) if name.arguments else 16
    return machine.memory_ns(2.0 * _covered(what, 1) * vector) / 0.8


def _indexed(instructions: float) -> Model:
    def model(machine: Machine, what: Kernel, name: KernelName) -> float:
        count = min(_said(what) or _covered(what, 4), _covered(what, 8))
        item = item_nbytes(name.arguments[0] if name.arguments else name.text)
        return overlapped(machine.memory_ns(2 * count * item) / 0.7, machine.issue_ns(instructions * count))

    return model


def _embedding_gradient(machine: Machine, what: Kernel, name: KernelName) -> float:
    """Sorted segments of rows summed by blocks that cover the worst case, most of them empty."""
    count = max((elements(shape) for shape in what.sizes), default=0) or _covered(what, 1)
    return machine.issue_ns(SEGMENT_INSTRUCTIONS * count)


def _sweep(machine: Machine, what: Kernel, name: KernelName) -> float:
    return PASS_NS + machine.memory_ns(32.0 * _covered(what, 4), blocks=prod(what.grid))


def _small(machine: Machine, what: Kernel, name: KernelName) -> float:
    return machine.memory_ns(16.0 * _covered(what, 1))


def _dropout(machine: Machine, what: Kernel, name: KernelName) -> float:
    count = max((elements(shape) for shape in what.sizes), default=0) or _covered(what, 4)
    item = item_nbytes(name.arguments[0] if name.arguments else "float")
    return overlapped(machine.memory_ns(count * (2 * item + 1)), machine.issue_ns(PHILOX_INSTRUCTIONS * count))


def _random(machine: Machine, what: Kernel, name: KernelName) -> float:
    count = max((elements(shape) for shape in what.sizes), default=0) or _covered(what, 4)
    item = item_nbytes(name.arguments[0] if name.arguments else "float")
    return overlapped(machine.memory_ns(count * item), machine.issue_ns(PHILOX_INSTRUCTIONS * count))


def _sharded_copy(machine: Machine, what: Kernel, name: KernelName) -> float:
    """FSDP's packing and unpacking: each thread moves one 16-byte vector, strided rows of parameters."""
    # The largest shape is the flat buffer; all-gathered parameters are of half precision.
    count = max((elements(shape) for shape in what.sizes), default=0) or _covered(what, 8)
    if "chunk_cat" not in name.base:
        return machine.memory_ns(2 * count * 2.0) / 0.92
    written, read = (
        (item_nbytes(one) for one in (name.arguments[0], name.arguments[-1])) if name.arguments else (4.0, 4.0)
    )
    return machine.memory_ns(count * (written + read)) / 0.45


def _triton(machine: Machine, what: Kernel, name: KernelName) -> float:
    """Inductor's fused kernels: point-wise ones take 4 elements a thread, reductions loop; two inputs and one output
    of half precision.
    """
    per_thread = 4 if "_poi_" in name.base else 16
    count = _covered(what, per_thread)
    return overlapped(machine.memory_ns(6.0 * count), machine.issue_ns(20.0 * count))


RULES: tuple[tuple[str, Model], ...] = (
    (r"CatArrayBatchedCopy", _cat),
    (r"vectorized_gather", _vector_gather),
    (r"compute_grad_weight|sum_and_scatter|embedding_backward", _embedding_gradient),
    (r"RadixSort|OnesweepKernel|UniqueByKey|DeviceScan|DeviceReduce|DeviceSelect|DeviceMerge|sort", _sweep),
    (r"krn_partial|lpnorm_cleanup|unpack_cudnn", _small),
    (r"dropout", _dropout),
    (r"distribution_|random", _random),
    (r"chunk_cat|split_with_sizes", _sharded_copy),
    (r"index|gather|scatter|embedding|take|put|flip|roll|tril|triu|masked|where", _indexed(40.0)),
    (r"^triton_", _triton),
)
