"""Models kernels that sort, select, scan and count."""

from __future__ import annotations

from math import ceil, prod

from profiles.kernel_names.kernel_name import KernelName, integer
from profiles.models.kernels.sizes import covered, item_of, largest, said
from profiles.models.machine import Machine, Model, overlapped
from profiles.signature import Kernel, elements

SCAN_ROUND_NS, SCAN_START_NS = 1_400.0, 1_600.0  # PyTorch's scan along rows: a round has two columns for each thread
TOPK_WAVE_NS = 6_800.0
GATHERED, COUNTED = 115.0, 67.0  # selection of long rows: instructions per element
GATHER_START_NS, GATHER_BLOCK_NS, COUNT_BLOCK_NS = 4_000.0, 1.4, 0.75
SUMMED_BLOCK_NS, WITHIN_BLOCK_NS = 1.05, 1.75
# CUB's kernels over few elements: look-back through the blocks before.
PASSES_NS = (
    ("Init", 0.0),
    ("ExclusiveSum", -100.0),
    ("Histogram", -2_300.0),
    ("DeviceScan", 1_000.0),
    ("UniqueByKey", 3_700.0),
    ("", 4_900.0),
)
"""The times by a part of the name. Zero and less: of fixed size, whatever the grid."""
PAIR_NBYTES, SWEPT_ITEMS = 32.0, 16  # a key and a value, read and written; of a thread
BLOCK_SORT, BLOCK_SORT_16, BITONIC = 900.0, 590.0, 1_200.0  # instructions per element
SORT_START_NS = 4_000.0
# Those of a 4-byte element; the start with items of 4 and of 8 bytes.
HISTOGRAM_INSTRUCTIONS, HISTOGRAM_START_NS = 170.0, (300.0, 1_200.0)
MERGE_ROUND_NS, MERGE_NS = 100.0, 0.0017  # a counter of each thread; all counters of all blocks


def sweep(machine: Machine, what: Kernel, name: KernelName) -> float:
    start = next(ns for part, ns in PASSES_NS if part in name.base)
    if start <= 0:
        return -start
    return start + machine.memory_ns(PAIR_NBYTES * covered(what, SWEPT_ITEMS))


def digit_counts(machine: Machine, what: Kernel, name: KernelName) -> float:
    """Passes over all elements: selection by several blocks for a row."""
    work = machine.issue_ns(COUNTED * (largest(what) or covered(what, 16)))
    return work + _of_blocks(machine, what, COUNT_BLOCK_NS)


def counts(block_ns: float) -> Model:
    """The model of the kernels between these passes: a block for each of theirs, or for each row, whatever its
    length.
    """
    return lambda machine, what, name: 1_000.0 + _of_blocks(machine, what, block_ns)


def _of_blocks(machine: Machine, what: Kernel, block_ns: float) -> float:
    return prod(what.grid) * block_ns * machine.gpu.sm_count / machine.sms


def block_sort(machine: Machine, what: Kernel, name: KernelName) -> float:
    """The time of radixSortKVInPlace<dims, dims, threads, items, ...>: a block sorts a row in registers."""
    items = integer(name.arguments[3], 32) if len(name.arguments) > 3 else 32
    instructions = BLOCK_SORT if "float" in name.text or "float" in name.arguments[4:5] else BLOCK_SORT_16
    return SORT_START_NS + machine.issue_ns(instructions * covered(what, items))


def bitonic(machine: Machine, what: Kernel, name: KernelName) -> float:
    return SORT_START_NS / 2 + machine.issue_ns(BITONIC * covered(what, 1))


def topk(machine: Machine, what: Kernel, name: KernelName) -> float:
    """The time of radix selection by a block per row: four passes for 32-bit keys, from caches while rows are short.
    Where rows were counted before (`mbtopk`), only what was selected is gathered.
    """
    if "mbtopk" in name.text and what.sizes:
        work = machine.issue_ns(GATHERED * elements(what.sizes[0]))
        return GATHER_START_NS + work + _of_blocks(machine, what, GATHER_BLOCK_NS)
    waves = ceil(prod(what.grid) / (machine.sms * _resident(machine, what)))
    length = what.sizes[0][-1] if what.sizes and what.sizes[0] else 32
    rounds = ceil(length / max(prod(what.block) * 4, 1))
    return waves * TOPK_WAVE_NS * (1.0 if length <= 32 else 1.9) * max(rounds / 4, 1.0)


def _resident(machine: Machine, what: Kernel) -> int:
    limits = machine.gpu.limits
    return min(max(limits.threads_per_sm // max(prod(what.block), 1), 1), limits.blocks_per_sm)


def row_scan(machine: Machine, what: Kernel, name: KernelName) -> float:
    """A block goes along its rows, two columns at a time for each of a row's threads."""
    length = what.sizes[0][-1] if what.sizes and what.sizes[0] else 1024
    waves = max(prod(what.grid) / (machine.sms * _resident(machine, what)), 1.0)
    rounds = ceil(length / max(2 * what.block[0], 1))
    waits = waves * (SCAN_START_NS + rounds * SCAN_ROUND_NS)
    return overlapped(waits, machine.memory_ns(2 * largest(what) * item_of(name)), exponent=2.0)


def histogram(machine: Machine, what: Kernel, name: KernelName) -> float:
    """The time of PyTorch's histc and bincount: blocks count in shared memory if the bins fit there, then add up their
    counters.
    """
    count = said(what) or covered(what, 1)
    item = item_of(name)
    work = machine.issue_ns(count * HISTOGRAM_INSTRUCTIONS * item / 4)
    counters = what.shared_nbytes / item
    merging = counters / prod(what.block) * MERGE_ROUND_NS + counters * prod(what.grid) * MERGE_NS
    return HISTOGRAM_START_NS[item > 4] + work + merging
