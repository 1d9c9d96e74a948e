"""Kernels that move data by index: concatenation, gathers, embeddings, sorting, random numbers. Bytes over streaming
rate x efficiency, instructions, or rounds of dependent loads.
"""

from __future__ import annotations

from math import ceil, prod

from profiles.kernel_names.kernel_name import KernelName, integer, item_nbytes
from profiles.models.machine import Machine, Model, overlapped
from profiles.models.products import attention
from profiles.signature import Kernel, Shape, elements

SECTOR_NBYTES = 32  # what a random access takes from memory
PHILOX_INSTRUCTIONS = 60.0  # one random number, compared or scaled
SEGMENT_INSTRUCTIONS = 250.0  # an embedding's gradient, per element: look-ups of segment borders, most blocks find none
GATHER_START_NS = 800.0
ROWS_ADDED_NS = 1_450.0  # 32 rows at random places of a table; half of it where they follow each other
CAT_INSTRUCTIONS, CAT_DIMENSION = 50.0, 24.0  # an element whose place is computed; for each of its dimensions
WARP_ROW_NS = 0.55  # a block of one warp per row: launched faster than it can be dealt out
SCAN_ROUND_NS = 1_260.0  # of PyTorch's scan along rows: 32 columns
TOPK_WAVE_NS = 6_800.0
GATHERED, COUNTED = 145.0, 65.0  # selection by several blocks: instructions per element
BAG_NS, BAG_ITEM_NS = 2_200.0, 400.0  # a bag's look-up, and each of its items, one after another
BAG_LANES = 32
# CUB's kernels over few elements: look-back through the blocks before.
PASSES_NS = (
    ("Init", 0.0), ("ExclusiveSum", -100.0), ("Histogram", -2_300.0), ("DeviceScan", 1_000.0),
    ("UniqueByKey", 3_700.0), ("", 4_900.0),
)  # fmt: skip
"""By a part of the name. Zero and less: of fixed size, whatever the grid."""
BLOCK_OF_ITEMS_NS = 0.8  # over all SMs
PAIR_NBYTES, SWEPT_ITEMS = 32.0, 16  # a key and a value, read and written; of a thread
BLOCK_SORT, BLOCK_SORT_16, BITONIC = 900.0, 590.0, 1_200.0  # instructions per element
SORT_START_NS = 4_000.0
HISTOGRAM_INSTRUCTIONS, HISTOGRAM_START_NS = 170.0, (300.0, 1_200.0)  # of a 4-byte element; of 4 and 8 bytes
MERGE_ROUND_NS, MERGE_NS = 100.0, 0.0017  # a counter of each thread; all counters of all blocks


def _said(what: Kernel) -> int:
    return sum(elements(shape) for shape in what.sizes if shape)


def _largest(what: Kernel) -> int:
    return max((elements(shape) for shape in what.sizes), default=0)


def _covered(what: Kernel, per_thread: int) -> int:
    return prod(what.grid) * prod(what.block) * per_thread


def _item(name: KernelName) -> float:
    return item_nbytes(name.arguments[0] if name.arguments else name.text)


def _cat(machine: Machine, what: Kernel, name: KernelName) -> float:
    """Every input is read and written once. Aligned kernels go in 16-byte vectors over a grid that may stride; others
    compute the place of each element from all its dimensions. The blocks of an empty input have nothing to do.
    """
    count = _said(what) or _covered(what, 4)
    memory = machine.memory_ns(2 * count * _item(name)) / 0.92
    if name.base != "CatArrayBatchedCopy":
        return memory
    dimensions = integer(name.arguments[2], 4) if len(name.arguments) > 2 else 4
    inputs = [shape for shape in what.sizes if shape]
    working = sum(1 for shape in inputs if elements(shape)) / len(inputs) if inputs else 1.0
    resident = machine.sms * machine.gpu.limits.threads_per_sm / max(prod(what.grid) * prod(what.block) * working, 1.0)
    work = machine.issue_ns(count * (CAT_INSTRUCTIONS + CAT_DIMENSION * dimensions)) * max(resident, 1.0) ** 0.5
    return overlapped(memory, work)


def _vector_gather(machine: Machine, what: Kernel, name: KernelName) -> float:
    """One vector per thread, read and written; a short row leaves most of a warp idle. What is read more often than
    there are rows comes from caches.
    """
    vector = integer(name.arguments[0], 16) if name.arguments else 16
    written = float(_covered(what, 1) * vector)
    shapes = [shape for shape in what.sizes if len(shape) >= 2]
    if len(shapes) > 1:
        written = min(written, elements(shapes[-1]) * 4.0)
    few = written > 4 * elements(shapes[0]) * 4.0 if shapes else False
    memory = machine.memory_ns(written * (1.0 if few else 2.0)) / 0.9
    rows = prod(what.grid) * WARP_ROW_NS * 132 / machine.sms
    return GATHER_START_NS + max(memory, rows if prod(what.block) <= 32 else 0.0)


def _indexed(instructions: float) -> Model:
    def model(machine: Machine, what: Kernel, name: KernelName) -> float:
        count = min(_said(what) or _covered(what, 4), _covered(what, 8))
        return overlapped(machine.memory_ns(2 * count * _item(name)) / 0.7, machine.issue_ns(instructions * count))

    return model


def _rows_put(machine: Machine, what: Kernel, name: KernelName) -> float:
    """indexing_backward_kernel: each row of values is added to one of the result, which is read and written."""
    rows = [shape for shape in what.sizes if len(shape) >= 2]
    count = elements(rows[-1]) if rows else _covered(what, 4)
    return overlapped(machine.memory_ns(3 * count * _item(name)), machine.issue_ns(85.0 * count))


def _items_put(machine: Machine, what: Kernel, name: KernelName) -> float:
    """The same for single items: four warps a block, each for one index, whose time is that of their launch."""
    return 1_000.0 + prod(what.grid) * BLOCK_OF_ITEMS_NS * machine.gpu.sm_count / machine.sms


def _scattered(machine: Machine, what: Kernel, name: KernelName) -> float:
    """gather and scatter along a dimension: each index takes a sector of its own; additions are atomic."""
    shapes = [shape for shape in what.sizes if shape]
    count = elements(shapes[1]) if len(shapes) > 1 else _covered(what, 8)
    source = elements(shapes[0]) * _item(name) if shapes else 0.0
    touched = min(count * SECTOR_NBYTES, source or count * SECTOR_NBYTES)
    added = "ReduceAdd" in name.text or "<true" in name.text.replace(" ", "")
    work = machine.issue_ns(count * (450.0 if added else 200.0))
    return overlapped(machine.memory_ns(touched + count * (8 + _item(name))), work)


def _index_add(machine: Machine, what: Kernel, name: KernelName) -> float:
    """indexFunc: rows added by a fixed number of blocks, element by element, with atomic additions."""
    count = min((elements(shape) for shape in what.sizes if len(shape) >= 2), default=_covered(what, 8))
    return machine.issue_ns(count * (280.0 if _item(name) < 4 else 240.0))


def _embedding_gradient(machine: Machine, what: Kernel, name: KernelName) -> float:
    """Sorted segments of rows summed by blocks that cover the worst case, most of them empty."""
    count = _largest(what) or _covered(what, 1)
    if "embedding_bag" in what.op and len(what.sizes) > 1:
        count = elements(what.sizes[1]) * what.sizes[0][-1]  # a row of the gradient for each index
    return 1_200.0 + machine.issue_ns(SEGMENT_INSTRUCTIONS * count)


def _dense_embedding_gradient(machine: Machine, what: Kernel, name: KernelName) -> float:
    """embedding_backward_feature_kernel: a block for 32 columns goes through all indices, 32 at a time, and waits for
    the rows that they add to.
    """
    indices = max((elements(shape) for shape in what.sizes[1:2]), default=1024)
    rounds = ceil(indices / max(what.block[1] * 1, 1))
    return rounds * ROWS_ADDED_NS * max(1.0, prod(what.grid) / machine.sms)


def _bags(machine: Machine, what: Kernel, name: KernelName) -> float:
    """EmbeddingBag: a warp sums the rows of a bag, 32 columns at a time, one row after another."""
    if len(what.sizes) < 3 or len(what.sizes[0]) < 2:
        return machine.memory_ns(16.0 * _covered(what, 1))
    columns, indices, bags = what.sizes[0][-1], elements(what.sizes[1]), max(elements(what.sizes[2]), 1)
    pooled = indices / bags
    warps = bags * ceil(columns / BAG_LANES)
    at_once = min(prod(what.grid) * prod(what.block) / 32, machine.sms * machine.gpu.limits.threads_per_sm / 32)
    rounds = ceil(warps / max(at_once, 1))
    memory = machine.memory_ns((indices + bags) * columns * _item(name)) / 0.7
    return max(memory, rounds * (BAG_NS + BAG_ITEM_NS * pooled))


def _sweep(machine: Machine, what: Kernel, name: KernelName) -> float:
    start = next(ns for part, ns in PASSES_NS if part in name.base)
    if start <= 0:
        return -start
    return start + machine.memory_ns(PAIR_NBYTES * _covered(what, SWEPT_ITEMS))


def _digit_counts(instructions: float) -> Model:
    """Passes over all elements: selection by several blocks for a row."""
    return lambda machine, what, name: machine.issue_ns(instructions * (_largest(what) or _covered(what, 16)))


def _block_sort(machine: Machine, what: Kernel, name: KernelName) -> float:
    """radixSortKVInPlace<dims, dims, threads, items, ...>: a block sorts a row in registers."""
    items = integer(name.arguments[3], 32) if len(name.arguments) > 3 else 32
    instructions = BLOCK_SORT if "float" in name.text or "float" in name.arguments[4:5] else BLOCK_SORT_16
    return SORT_START_NS + machine.issue_ns(instructions * _covered(what, items))


def _bitonic(machine: Machine, what: Kernel, name: KernelName) -> float:
    return SORT_START_NS / 2 + machine.issue_ns(BITONIC * _covered(what, 1))


def _topk(machine: Machine, what: Kernel, name: KernelName) -> float:
    """Radix selection by a block per row: four passes for 32-bit keys, from caches while rows are short. Of long rows,
    several blocks gather what was selected.
    """
    if what.sizes and len(what.sizes[0]) > 1 and prod(what.grid) > prod(what.sizes[0][:-1]):
        return machine.issue_ns(GATHERED * elements(what.sizes[0]))
    waves = ceil(prod(what.grid) / (machine.sms * machine.gpu.limits.blocks_per_sm))
    length = what.sizes[0][-1] if what.sizes and what.sizes[0] else 32
    rounds = ceil(length / max(prod(what.block) * 4, 1))
    return waves * TOPK_WAVE_NS * (1.0 if length <= 32 else 1.9) * max(rounds / 4, 1.0)


def _row_scan(machine: Machine, what: Kernel, name: KernelName) -> float:
    """A block goes along its rows 32 columns at a time."""
    length = what.sizes[0][-1] if what.sizes and what.sizes[0] else 1024
    waves = ceil(prod(what.grid) / machine.sms)
    return max(waves * ceil(length / 32) * SCAN_ROUND_NS, machine.memory_ns(2 * _largest(what) * _item(name)))


def _small(machine: Machine, what: Kernel, name: KernelName) -> float:
    return machine.memory_ns(16.0 * _covered(what, 1))


def _histogram(machine: Machine, what: Kernel, name: KernelName) -> float:
    """PyTorch's histc and bincount: blocks count in shared memory if the bins fit there, then add up their counters."""
    count = _said(what) or _covered(what, 1)
    item = _item(name)
    work = machine.issue_ns(count * HISTOGRAM_INSTRUCTIONS * item / 4)
    counters = what.shared_nbytes / item
    merging = counters / prod(what.block) * MERGE_ROUND_NS + counters * prod(what.grid) * MERGE_NS
    return HISTOGRAM_START_NS[item > 4] + work + merging


def _short(start_ns: float) -> Model:
    return lambda machine, what, name: start_ns


def _dropout(machine: Machine, what: Kernel, name: KernelName) -> float:
    count = _largest(what) or _covered(what, 4)
    return 300.0 + overlapped(
        machine.memory_ns(count * (2 * _item(name) + 1)), machine.issue_ns(PHILOX_INSTRUCTIONS * count)
    )


def _random(machine: Machine, what: Kernel, name: KernelName) -> float:
    count = _largest(what) or _covered(what, 4)
    return 300.0 + overlapped(
        machine.memory_ns(count * _item(name)), machine.issue_ns(1.25 * PHILOX_INSTRUCTIONS * count)
    )


def _sharded_copy(machine: Machine, what: Kernel, name: KernelName) -> float:
    """FSDP's packing and unpacking: each thread moves one 16-byte vector, strided rows of parameters."""
    # The largest shape is the flat buffer; all-gathered parameters are of half precision.
    count = _largest(what) or _covered(what, 8)
    if "chunk_cat" not in name.base:
        return machine.memory_ns(2 * count * 2.0) / 0.92
    written, read = (
        (item_nbytes(one) for one in (name.arguments[0], name.arguments[-1])) if name.arguments else (4.0, 4.0)
    )
    return machine.memory_ns(count * (written + read)) / 0.45


def _per_thread(instructions: float, half: float | None = None) -> Model:
    """One output per thread. `half`: instructions for 16-bit items, if these need more."""

    def model(machine: Machine, what: Kernel, name: KernelName) -> float:
        threads, item = _covered(what, 1), _item(name)
        cost = half if half is not None and item < 4 else instructions
        nbytes = min(2 * threads, _said(what) * 2 or 2 * threads) * item
        return overlapped(machine.memory_ns(nbytes), machine.issue_ns(cost * threads))

    return model


def _planes(machine: Machine, what: Kernel, name: KernelName) -> float:
    """Bilinear interpolation, channels first: a thread goes through all images and channels, one after another."""
    planes = what.sizes[0][0] * what.sizes[0][1] if what.sizes and len(what.sizes[0]) > 1 else 1
    waves = ceil(_covered(what, 1) / (machine.sms * machine.gpu.limits.threads_per_sm))
    return waves * planes * (350.0 if _item(name) >= 4 else 250.0)


def _taps(what: Kernel) -> int:
    filters: Shape = min((shape for shape in what.sizes if len(shape) == 4 and shape[1] == 1), key=elements, default=())
    return prod(filters[2:]) if filters else 9


def _depthwise(output: float, tap: float) -> Model:
    """PyTorch's own depthwise convolutions: an output, or a pixel's gradient, per thread."""

    def model(machine: Machine, what: Kernel, name: KernelName) -> float:
        return machine.issue_ns(_covered(what, 1) * (output + tap * _taps(what)))

    return model


def _depthwise_weights(machine: Machine, what: Kernel, name: KernelName) -> float:
    """A block for each weight sums over all pixels of the gradient."""
    gradient = what.sizes[0] if what.sizes and len(what.sizes[0]) == 4 else (1, 1, 32, 32)
    pixels = gradient[0] * prod(gradient[2:])
    return machine.issue_ns(prod(what.grid) * (52.0 * pixels + 450_000.0))


RULES: tuple[tuple[str, str, Model], ...] = (
    (r"flash_bwd_(dot_do_o|convert_dq)", "attention", attention.helper_ns),
    (r"conv_depthwise2d_forward", "depthwise convolution of PyTorch", _depthwise(120.0, 20.0)),
    (r"conv_depthwise2d_backward", "depthwise convolution of PyTorch", _depthwise(400.0, 14.0)),
    (r"conv_depthwise2d_grad_weight", "depthwise convolution of PyTorch", _depthwise_weights),
    (r"prepare_grouped_gemm_data", "grouped product", _short(700.0)),
    (r"kernelHistogram1D", "sorting and scanning", _histogram),
    (r"CatArrayBatchedCopy", "concatenation", _cat),
    (r"indexing_backward_kernel_stride_1|indexing_backward_kernel_many", "gather and scatter", _items_put),
    (r"indexing_backward_kernel", "gather and scatter", _rows_put),
    (r"vectorized_gather", "gather and scatter", _vector_gather),
    (r"embedding_backward_feature", "embedding", _dense_embedding_gradient),
    (r"compute_grad_weight|sum_and_scatter|embedding_backward", "embedding", _embedding_gradient),
    (r"EmbeddingBag_update", "embedding bag", _bags),
    (r"gatherTopK", "sorting and scanning", _topk),
    (r"bitonicSort", "sorting and scanning", _bitonic),
    (r"radixSortKVInPlace", "sorting and scanning", _block_sort),
    (r"computeBlockDigitCounts", "sorting and scanning", _digit_counts(COUNTED)),
    (r"computeBlockwise|computeDigitCumSum", "sorting and scanning", _short(1_000.0)),
    (r"^fill$|fill_reverse_indices", "sorting and scanning", _small),
    (r"scan_innermost_dim|scan_outer_dim", "sorting and scanning", _row_scan),
    (
        r"RadixSort|OnesweepKernel|UniqueByKey|DeviceScan|DeviceCompact|DeviceReduce|DeviceSelect|DeviceMerge|sort",
        "sorting and scanning",
        _sweep,
    ),
    (r"krn_partial|lpnorm_cleanup|unpack_cudnn|partial_segments", "embedding", _small),
    (r"dropout", "random numbers", _dropout),
    (r"distribution_|random", "random numbers", _random),
    (r"chunk_cat|split_with_sizes", "sharded copy", _sharded_copy),
    (r"indexFunc", "gather and scatter", _index_add),
    (r"_scatter_gather_elementwise", "gather and scatter", _scattered),
    (r"upsample_nearest\w*backward", "resampling", _per_thread(400.0)),
    (r"upsample_nearest", "resampling", _per_thread(215.0)),
    (r"upsample_\w*backward", "resampling", _per_thread(290.0, 520.0)),
    (r"upsample_bilinear2d_out_frame", "resampling", _planes),
    (r"upsample", "resampling", _per_thread(310.0)),
    (r"avg_pool\w*backward", "resampling", _per_thread(590.0)),
    (r"avg_pool\w*nhwc", "resampling", _per_thread(800.0)),
    (r"avg_pool|adaptive_average_pool", "resampling", _per_thread(400.0)),
    (r"index|gather|scatter|embedding|take|put|flip|roll|tril|triu|masked|where", "gather and scatter", _indexed(40.0)),
)
"""Pattern of a kernel's name, family of kernels, model."""
