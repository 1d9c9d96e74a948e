"""Models kernels that move data by index: concatenation, gathers, embeddings, random numbers. Their time follows from
bytes at a share of the streaming rate, from instructions, or from rounds of dependent loads.

RULES lists them, and those of `sorting` and `images`: the first pattern that a kernel's name has decides.
"""

from __future__ import annotations

from math import ceil, prod, sqrt

from profiles.kernel_names.kernel_name import KernelName, integer, item_nbytes
from profiles.models.kernels.images import (
    depthwise,
    depthwise_back,
    depthwise_gradient,
    depthwise_weights,
    folded,
    gathered,
    per_thread,
    planes,
    sampled,
    spread,
    spread_wide,
    unfolded,
    volume_weights,
)
from profiles.models.kernels.sizes import covered, item_of, largest, said
from profiles.models.kernels.sorting import (
    SUMMED_BLOCK_NS,
    WITHIN_BLOCK_NS,
    bitonic,
    block_sort,
    counts,
    digit_counts,
    histogram,
    row_scan,
    sweep,
    topk,
)
from profiles.models.machine import Machine, Model, overlapped
from profiles.models.products import attention
from profiles.signature import Kernel, elements

SECTOR_NBYTES = 32  # the bytes that a random access takes from memory
PICTURE_DIMS = 4
PHILOX_INSTRUCTIONS = 60.0  # one random number, compared or scaled
# An embedding's gradient: a block finds its segment, later where it has more threads, and adds its rows.
SEGMENT_NS, SEGMENT_THREAD_NS, SEGMENT_ROW_NS = 950.0, 1.1, 330.0
# A segment that has several parts: the time of the first one, and of each further one; of a thread that numbers them.
PART_NS, NEXT_PART_NS, NUMBERED_NS, NUMBERED_START_NS = 900.0, 145.0, 8.5, 450.0
FEWEST_ROWS = 2  # rows of an embedding whose launch has one block: usually token types
GATHER_START_NS = 800.0
INDEXED_START_NS = 2_400.0  # the index, its place, the item: loads that wait for each other
ROLLED = 145.0  # instructions of an item: divisions in 64 bits
ROWS_ADDED_NS = 1_450.0  # 32 rows at random places of a table; half of it where they follow each other
CAT_INSTRUCTIONS, CAT_DIMENSION = 50.0, 24.0  # an element whose place is computed; for each of its dimensions
# Where vectors are read and items written: sectors a cycle of one SM, those of an item in long rows, and how many more
# short ones ask for; a sector that two inputs share, if it has left the L2 cache: none has of an output that is small
# beside so many times its size.
CAT_SECTORS, CAT_LONG, CAT_SHORT, CAT_END_NS, CAT_REACH = 1.1, 0.5, 0.88, 0.23, 2.5
# Instructions for an item of a row that is written elsewhere as a whole: a fill, one that compares and swaps, others.
ROWS_FILLED, ROWS_COMPARED, ROWS_SCATTERED = 73.0, 178.0, 110.0
ROWS_BROKEN, ROWS_START_NS = 1.3, 3_500.0
SCATTERED_START_NS = 4_500.0
BAG_NS, BAG_ITEM_NS = 2_200.0, 400.0  # a bag's look-up, and each of its items, one after another
BAG_LANES = 32
WARP = 32
GATED = 170.0  # instructions for an element of GLU's gradient, whose operands are strided
VECTOR_NBYTES = 16  # the bytes that a thread of FSDP's packing writes
PACKED, PACKED_CONVERTED = 0.92, 0.61
REPEATED_NS = 670.0  # a row of values that is added to one that the row before it was added to
REPEATED_SHORT_NS, REPEATED_ATOMIC_NS = 220.0, 250.0  # ... of up to 32 columns; by atomic additions
LONGEST = 3.3  # standard deviations of the longest of such chains
BLOCK_OF_ROWS_NS = 1.2  # over all SMs
SEGMENT_ROWS = 10  # rows of a part
BLOCK_OF_ITEMS_NS = 0.8  # over all SMs


def _cat(machine: Machine, what: Kernel, name: KernelName) -> float:
    """The time of concatenation: every input is read and written once. Aligned kernels go in 16-byte vectors over a
    grid that may stride; others compute the place of each element from all its dimensions. The blocks of a short input
    soon have nothing to do.
    """
    count = said(what) or covered(what, 4)
    memory = machine.memory_ns(2 * count * item_of(name)) / 0.92
    if name.base == "CatArrayBatchedCopy_alignedK_contig":
        return _cat_unaligned(machine, what, item_of(name), count, memory)
    if name.base != "CatArrayBatchedCopy":
        return memory
    dimensions = integer(name.arguments[2], 4) if len(name.arguments) > 2 else 4
    inputs = [shape for shape in what.sizes if shape]
    longest = max(map(elements, inputs), default=0)
    working = sum(map(elements, inputs)) / (longest * len(inputs)) if longest else 1.0
    resident = machine.sms * machine.gpu.limits.threads_per_sm / max(prod(what.grid) * prod(what.block) * working, 1.0)
    work = machine.issue_ns(count * (CAT_INSTRUCTIONS + CAT_DIMENSION * dimensions)) * max(resident, 1.0) ** 0.5
    return overlapped(memory, work)


def _cat_unaligned(machine: Machine, what: Kernel, item: float, count: int, memory: float) -> float:
    """The time of concatenation with unaligned rows: vectors are read, and their items written one by one: a warp's go
    to sectors of their own, more where rows are short. Sectors that two inputs share are written in part, and read
    again by what leaves the L2 cache.
    """
    inputs = [shape for shape in what.sizes if shape and elements(shape)]
    if not inputs:
        return overlapped(memory, machine.issue_ns(count * CAT_INSTRUCTIONS))
    differ = (at for at, sizes in enumerate(zip(*inputs, strict=False)) if len(set(sizes)) > 1)
    pictures = len(inputs[0]) == PICTURE_DIMS
    dim = next(differ, 1 if pictures else len(inputs[0]) - 1)
    # Pictures are channels last here: others would be read in vectors.
    rows = [shape[1] if pictures and dim == 1 else prod(shape[dim:]) for shape in inputs]
    items, whole = VECTOR_NBYTES / item, all(row * item % SECTOR_NBYTES == 0 for row in rows)
    sectors = sum(
        elements(shape) * min(CAT_LONG + CAT_SHORT * items / row, 1.0) for shape, row in zip(inputs, rows, strict=True)
    )
    ends = 0 if whole else sum(elements(shape) // row for shape, row in zip(inputs, rows, strict=True))
    stored = sectors / (CAT_SECTORS * machine.sms * machine.gpu.sm_clock_khz * 1e-6)
    shared = min(ends, count * item / SECTOR_NBYTES)
    evicted = min(count * item / (CAT_REACH * machine.gpu.memory.l2_nbytes), 1.0)
    return overlapped(memory, stored) + machine.loaded_ns(shared * CAT_END_NS * evicted)


def _vector_gather(machine: Machine, what: Kernel, name: KernelName) -> float:
    """One vector per thread, read and written; a short row leaves most of a warp idle. What is read more often than
    there are rows comes from caches.
    """
    vector = integer(name.arguments[0], 16) if name.arguments else 16
    written = float(covered(what, 1) * vector)
    shapes = [shape for shape in what.sizes if len(shape) >= 2]
    if len(shapes) > 1:
        written = min(written, elements(shapes[-1]) * 4.0)
    table = elements(shapes[0]) * 4.0 if shapes else 0.0
    few = 0 < 4 * table < written and table <= machine.gpu.memory.l2_nbytes
    memory = machine.memory_ns(written * (1.0 if few else 2.0)) / 0.9
    return GATHER_START_NS + max(memory, machine.dealt_out_ns(prod(what.grid)))


def _indexed(instructions: float, start_ns: float = 0.0) -> Model:
    def model(machine: Machine, what: Kernel, name: KernelName) -> float:
        count = min(said(what) or covered(what, 4), covered(what, 8))
        work = machine.issue_ns(instructions * count)
        return start_ns + overlapped(machine.memory_ns(2 * count * item_of(name)) / 0.7, work)

    return model


def _rows_put(machine: Machine, what: Kernel, name: KernelName) -> float:
    """The time of indexing_backward_kernel: each row of values is added to one of the result, which is read and
    written. A warp begins for each row of values and 128 columns of it, and the first of those of one row adds all of
    them. Places at random are taken: the longest such chain counts.
    """
    shapes = [shape for shape in what.sizes if len(shape) >= 2]
    count = elements(shapes[-1]) if shapes else covered(what, 4)
    written = min(2 * elements(shapes[0]), 2 * count) if shapes else 2 * count
    memory = machine.memory_ns((count + written) * item_of(name))
    dealt = prod(what.grid) * BLOCK_OF_ROWS_NS * machine.gpu.sm_count / machine.sms
    return max(overlapped(memory, dealt), _longest(what) * REPEATED_NS)


def _longest(what: Kernel) -> float:
    """The number of values that are added to the row with most of them, when rows are chosen at random."""
    several = [shape for shape in what.sizes if len(shape) >= 2]
    if len(several) < 2 or not elements(several[0]):
        return 1.0
    # A row is what both have in their last dimensions: an index for each of several dimensions chooses one, too.
    mean = elements(several[-1]) / elements(several[0])
    return mean + LONGEST * sqrt(mean) + 1.0


def _items_put(machine: Machine, what: Kernel, name: KernelName) -> float:
    """The time of writing single items or short rows by index: that of their launch. A block has four warps, each for
    one index. For short rows the chains count, too.
    """
    dealt = 1_000.0 + prod(what.grid) * BLOCK_OF_ITEMS_NS * machine.gpu.sm_count / machine.sms
    return max(dealt, _longest(what) * REPEATED_SHORT_NS) if "small_stride" in name.base else dealt


def _scattered(machine: Machine, what: Kernel, name: KernelName) -> float:
    """The time of gather and scatter along a dimension: each index takes a sector of its own; additions are atomic.
    Rows of another number with the same width have one index for each of them, repeated along the row (`scatter_add` of
    graphs).
    """
    shapes = [shape for shape in what.sizes if shape]
    count = min(elements(shapes[1]), covered(what, 8)) if len(shapes) > 1 else covered(what, 8)  # halves of large ones
    source = elements(shapes[0]) * item_of(name) if shapes else 0.0
    touched = min(count * SECTOR_NBYTES, source or count * SECTOR_NBYTES)
    if len(shapes) > 1 and len(shapes[0]) > 1 and shapes[0][-1] == shapes[1][-1] and shapes[0][0] != shapes[1][0]:
        items = item_of(name) * (2 * count + min(elements(shapes[0]), count))
        cost = ROWS_FILLED if "fill" in name.text else ROWS_COMPARED if "ReduceM" in name.text else ROWS_SCATTERED
        if shapes[0][-1] % WARP:  # a warp's items belong to two rows
            cost *= ROWS_BROKEN
        chain = _longest(what) * REPEATED_ATOMIC_NS if "ReduceAdd" in name.text else 0.0
        return max(overlapped(machine.memory_ns(items), machine.issue_ns(cost * count)), chain, ROWS_START_NS)
    added = "ReduceAdd" in name.text or "<true" in name.text.replace(" ", "")
    work = machine.issue_ns(count * (450.0 if added else 200.0))
    return max(overlapped(machine.memory_ns(touched + count * (8 + item_of(name))), work), SCATTERED_START_NS)


def _index_add(machine: Machine, what: Kernel, name: KernelName) -> float:
    """The time of indexFunc: rows added by a fixed number of blocks, element by element, with atomic additions. The
    rows are the last matrix of the op's inputs, behind the one that they are added to; of vectors, the last one.
    """
    shapes = [shape for shape in what.sizes if shape]
    rows = next((shape for shape in reversed(shapes) if len(shape) >= 2), shapes[-1] if len(shapes) > 1 else ())
    count = elements(rows) if rows else covered(what, 8)
    return machine.issue_ns(count * (280.0 if item_of(name) < 4 else 240.0))


def _embedding_gradient(machine: Machine, what: Kernel, name: KernelName) -> float:
    """The time of an embedding's gradient: segments of rows that belong to one index, in parts of SEGMENT_ROWS, summed
    by blocks that cover the worst case: as many segments as there can be, and their parts.
    """
    blocks, threads = prod(what.grid), prod(what.block)
    limits = machine.gpu.limits
    at_once = machine.sms * min(max(limits.threads_per_sm // threads, 1), limits.blocks_per_sm)
    added = 1.0
    if "grad_weight" in name.base and len(what.sizes) > 1 and what.sizes[0]:
        rows = elements(what.sizes[1])
        parts = blocks * threads / (ceil(what.sizes[0][-1] / WARP) * WARP)
        added = min(max(rows / max(parts - rows / SEGMENT_ROWS, 1.0), 1.0), SEGMENT_ROWS)
    parts_ns = 0.0
    if name.base == "sum_and_scatter" and (parts := _parts(what, blocks)) > 1:
        parts_ns = PART_NS + NEXT_PART_NS * (parts - 1)
    waits = max(blocks / at_once, 1.0 if parts_ns else 0.0) * (
        SEGMENT_NS + SEGMENT_THREAD_NS * threads + SEGMENT_ROW_NS * (added - 1) + parts_ns
    )
    return max(waits, SEGMENT_NS)


def _parts(what: Kernel, segments: int) -> float:
    """The mean number of further parts of each segment, if the indices are spread over all of them. It is 0 if there
    are no more indices than segments: nobody knows how many segments are used.
    """
    indices = elements(what.sizes[1]) if len(what.sizes) > 1 else 0
    return indices / segments / SEGMENT_ROWS + 1 / 2 if indices > segments else 0.0


def _numbered_parts(machine: Machine, what: Kernel, name: KernelName) -> float:
    """The time of krn_partial_segment_offset and its like: a thread for each segment writes a number for each of its
    parts.
    """
    blocks = prod(what.grid)
    segments = blocks * what.block[0] if blocks > 1 else FEWEST_ROWS
    numbered = 0.0 if "partials_per" in name.base else _parts(what, segments) * NUMBERED_NS
    return NUMBERED_START_NS + max(_small(machine, what, name), numbered)


def _dense_embedding_gradient(machine: Machine, what: Kernel, name: KernelName) -> float:
    """The time of embedding_backward_feature_kernel: a block for 32 columns goes through all indices, 32 at a time, and
    waits for the rows that they add to.
    """
    indices = max((elements(shape) for shape in what.sizes[1:2]), default=1024)
    rounds = ceil(indices / max(what.block[1] * 1, 1))
    return rounds * ROWS_ADDED_NS * max(1.0, prod(what.grid) / machine.sms)


def _bags(machine: Machine, what: Kernel, name: KernelName) -> float:
    """The time of EmbeddingBag: a warp sums the rows of a bag, 32 columns at a time, one row after another."""
    if len(what.sizes) < 3 or len(what.sizes[0]) < 2:
        return machine.memory_ns(16.0 * covered(what, 1))
    columns, indices, bags = what.sizes[0][-1], elements(what.sizes[1]), max(elements(what.sizes[2]), 1)
    pooled = indices / bags
    warps = bags * ceil(columns / BAG_LANES)
    at_once = min(prod(what.grid) * prod(what.block) / 32, machine.sms * machine.gpu.limits.threads_per_sm / 32)
    rounds = ceil(warps / max(at_once, 1))
    memory = machine.memory_ns((indices + bags) * columns * item_of(name)) / 0.7
    return max(memory, rounds * (BAG_NS + BAG_ITEM_NS * pooled))


def _small(machine: Machine, what: Kernel, name: KernelName) -> float:
    return max(machine.memory_ns(16.0 * covered(what, 1)), machine.dealt_out_ns(prod(what.grid)))


def _coalesced(machine: Machine, what: Kernel, name: KernelName) -> float:
    """The time of coalesceValuesKernel: a thread adds up four columns of a sparse tensor's equal places, mostly one."""
    return machine.memory_ns(2.0 * 4 * item_of(name) * covered(what, 1))


def _gated(machine: Machine, what: Kernel, name: KernelName) -> float:
    """The time of GLU's gradient: both halves and the gradient are read, both halves written."""
    count = covered(what, 1)
    return overlapped(machine.memory_ns(5.0 * count * item_of(name)), machine.issue_ns(GATED * count))


def _short(start_ns: float) -> Model:
    return lambda machine, what, name: start_ns


def _dropout(machine: Machine, what: Kernel, name: KernelName) -> float:
    count = largest(what) or covered(what, 4)
    return 300.0 + overlapped(
        machine.streamed_ns(count * (2 * item_of(name) + 1)), machine.issue_ns(PHILOX_INSTRUCTIONS * count)
    )


def _random(machine: Machine, what: Kernel, name: KernelName) -> float:
    count = largest(what) or covered(what, 4)
    return 300.0 + overlapped(
        machine.streamed_ns(count * item_of(name)), machine.issue_ns(1.25 * PHILOX_INSTRUCTIONS * count)
    )


def _sharded_copy(machine: Machine, what: Kernel, name: KernelName) -> float:
    """The time of FSDP's packing and unpacking: each thread moves one 16-byte vector, strided rows of parameters. Where
    it is packed, the grid covers what is written, and a conversion reads less at once.
    """
    if "chunk_cat" not in name.base:
        # The largest shape is the flat buffer; all-gathered parameters are of half precision.
        count = largest(what) or covered(what, 8)
        return machine.memory_ns(2 * count * 2.0) / 0.92
    nbytes = float(covered(what, VECTOR_NBYTES))
    written, read = (item_nbytes(name.arguments[at]) for at in (0, -1)) if name.arguments else (1.0, 1.0)
    rate = PACKED if written == read else PACKED_CONVERTED
    return machine.memory_ns(nbytes * (1.0 + read / written)) / rate


RULES: tuple[tuple[str, str, Model], ...] = (
    (r"flash_bwd_(dot_do_o|convert_dq)", "attention", attention.helper_ns),
    (attention.COMBINE, "attention", attention.combined_ns),
    (r"conv_depthwise2d_forward_kernel_generic", "depthwise convolution of PyTorch", depthwise(286.0, 16.5)),
    (r"conv_depthwise2d_forward", "depthwise convolution of PyTorch", depthwise(120.0, 20.0)),
    (r"conv_depthwise2d_backward", "depthwise convolution of PyTorch", depthwise_back),
    (r"conv_depthwise2d_grad_weight", "depthwise convolution of PyTorch", depthwise_weights),
    (r"conv_depthwise3d_cuda_backward_weight", "depthwise convolution of PyTorch", volume_weights),
    (r"conv_depthwise3d_cuda_backward", "depthwise convolution of PyTorch", depthwise_gradient(400.0, 60.0)),
    (r"conv_depthwise3d", "depthwise convolution of PyTorch", depthwise(120.0, 20.0)),
    (r"max_pool3d_with_indices_backward", "pooling", per_thread(400.0)),
    (r"max_pool3d_with_indices", "pooling", per_thread(540.0)),
    (r"grid_sampler_2d_backward", "resampling", sampled(1_950.0, 1_090.0, 1_930.0)),
    (r"grid_sampler_2d_kernel", "resampling", sampled(530.0, 290.0, 260.0)),
    (r"reflection_pad1d_out", "resampling", per_thread(130.0)),
    (r"(reflection|replication)_pad.*backward", "resampling", per_thread(195.0, 330.0)),
    (r"(reflection|replication)_pad", "resampling", per_thread(185.0)),
    (r"col2im", "resampling", folded),
    (r"im2col", "resampling", unfolded),
    (r"_unfold_backward", "resampling", per_thread(2_950.0)),
    (r"_kernel_vectorized\d+_kernel$", "element-wise", per_thread(1_050.0)),  # compiled while it runs: complex numbers
    (r"amp_update_scale", "element-wise", _short(500.0)),
    (r"glu_backward", "element-wise", _gated),
    (r"write_indices", "sorting and scanning", _small),
    (r"assert_async", "element-wise", _small),
    (r"prepare_grouped_gemm_data", "grouped product", _short(700.0)),
    (r"kernelHistogram1D", "sorting and scanning", histogram),
    (r"CatArrayBatchedCopy", "concatenation", _cat),
    (r"indexing_backward_kernel_(stride_1|many|small)", "rows added by index", _items_put),
    (r"indexing_backward_kernel", "rows added by index", _rows_put),
    (r"coalesceValues", "rows added by index", _coalesced),
    (r"vectorized_gather", "gather of rows", _vector_gather),
    (r"embedding_backward_feature", "embedding", _dense_embedding_gradient),
    (r"compute_grad_weight|sum_and_scatter|embedding_backward", "embedding", _embedding_gradient),
    (r"EmbeddingBag_update", "embedding bag", _bags),
    (r"gatherTopK", "sorting and scanning", topk),
    (r"bitonicSort", "sorting and scanning", bitonic),
    (r"radixSortKVInPlace", "sorting and scanning", block_sort),
    (r"computeBlockDigitCounts", "sorting and scanning", digit_counts),
    (r"computeBlockwiseKth", "sorting and scanning", _short(1_000.0)),
    (r"computeBlockwiseWithin", "sorting and scanning", counts(WITHIN_BLOCK_NS)),
    (r"computeDigitCumSum", "sorting and scanning", counts(SUMMED_BLOCK_NS)),
    (r"^fill$|fill_reverse_indices", "sorting and scanning", _small),
    (r"scan_innermost_dim|scan_outer_dim", "sorting and scanning", row_scan),
    (
        r"RadixSort|OnesweepKernel|UniqueByKey|DeviceScan|DeviceCompact|DeviceReduce|DeviceSelect|DeviceMerge|sort",
        "sorting and scanning",
        sweep,
    ),
    (r"krn_partial", "embedding", _numbered_parts),
    (r"lpnorm_cleanup|unpack_cudnn|partial_segments", "embedding", _small),
    (r"dropout", "random numbers", _dropout),
    (r"distribution_|random", "random numbers", _random),
    (r"chunk_cat|split_with_sizes", "sharded copy", _sharded_copy),
    (r"indexFunc", "gather and scatter", _index_add),
    (r"_scatter_gather_elementwise", "gather and scatter", _scattered),
    (r"upsample_nearest\w*backward", "resampling", gathered),
    (r"upsample_nearest", "resampling", per_thread(215.0)),
    (r"upsample_bilinear2d_backward", "resampling", spread),
    (r"upsample_trilinear3d_backward", "resampling", spread_wide(840.0, 1_700.0)),
    (r"upsample_bicubic2d_backward", "resampling", spread_wide(4_300.0, 66_000.0)),
    (r"upsample_bicubic2d_out_frame", "resampling", planes(3_000.0, 3_000.0)),
    (r"upsample_\w*backward", "resampling", per_thread(290.0, 520.0)),
    (r"upsample_bilinear2d_out_frame", "resampling", planes(400.0, 350.0)),
    (r"upsample", "resampling", per_thread(310.0)),
    (r"avg_pool\w*backward", "resampling", per_thread(590.0)),
    (r"avg_pool\w*nhwc", "resampling", per_thread(800.0)),
    (r"avg_pool|adaptive_average_pool", "resampling", per_thread(400.0)),
    (r"^roll", "gather and scatter", _indexed(ROLLED)),
    (r"^index_elementwise", "gather and scatter", _indexed(40.0, INDEXED_START_NS)),
    (r"index|gather|scatter|embedding|take|put|flip|roll|tril|triu|masked|where", "gather and scatter", _indexed(40.0)),
)
"""The rules: pattern of a kernel's name, family of kernels, model."""
