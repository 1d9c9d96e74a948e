"""Models reductions, softmax and normalisation: how often each kernel passes over its input, and what it computes per
element.

The number of passes follows from PyTorch's code (aten/src/ATen/native/cuda). Instructions, and the time of a block
that waits for its own loads, were found from kernels on an H200 (docs/costs.md).
"""

from __future__ import annotations

import re
from math import ceil, prod

from profiles.kernel_names.kernel_name import KernelName, integer, item_nbytes
from profiles.models.kernels import sums
from profiles.models.machine import Machine, Model, overlapped
from profiles.signature import Kernel, Shape, elements

# A block of a loss goes through its targets in rounds: loads that wait for each other, of tensors in the L2 cache or
# not, and sectors that it asks for one by one.
TARGET_NS, CACHED_TARGET_NS, TARGET_ITEM_NS = 1_070.0, 770.0, 0.98
GRADIENT_NS, CACHED_GRADIENT_NS, GRADIENT_ITEM_NS = 540.0, 250.0, 1.15
PICTURE_ITEM_NS, PICTURE_NS = 0.8, 240.0  # neighbours' sectors are the same; blocks of a picture add up one by one
# Softmax of whole rows: its three readings hit the L2 cache while the rows in flight take less than a share of it.
CACHED, UNCACHED = 0.59, 0.66
SOFTMAX_BLOCKS = 2  # blocks that an SM has at a time
ROW_NS, ROW_ITEM, ROW_ITEM_HALF, ROW_EXPONENTIAL, ROW_ADD_UP = 9_200.0, 35.6, 23.6, 1.25, 2.86
# Rows in registers: by the items of a thread, with a second block on the SM or without.
HELD_NS, HELD_ITEM_NS, HELD_ALONE_NS, HELD_BY_TWO = 1_400.0, 640.0, 4_850.0, 6
CHANNEL_NS, CHANNELS_ADD_UP = 240.0, 1.6  # a channel of a pixel, of a block alone on its SM
# Softmax of a row by a warp, which pads it to a power of two: instructions a lane and an item (16 bits, others, times
# as many with a logarithm), and how bytes and instructions join.
WARP_FORWARD, WARP_BACKWARD = (48.0, 48.0, 28.0, 0.81, 2.5), (23.5, 35.0, 23.0, 1.24, 2.9)
# The share of shared memory and L1 together: rows in flight that take less are found there again, those that take twice
# as much are not found at all.
ROW_KEPT = 0.6
NORM_STREAM, NORM_L2 = 0.97, 0.65  # shares of the streaming bandwidths: a block waits for its row, then for its sums
# Weight gradients: a round of rows of a block, with and without means, by how many blocks an SM has; the bandwidth
# where a warp is a block, with 16-bit items and others.
COLUMNS_START_NS, COLUMNS_NS, COLUMNS_RMS_NS, COLUMNS_WAVE, COLUMNS_ADD_UP = 1_500.0, 1_046.0, 804.0, 1.2, 1.66
WARP_COLUMNS_HALF, WARP_COLUMNS = 0.78, 0.9
# Blocks that an SM has at a time, each of which normalises a channel; their start.
CHANNEL_BLOCKS, CHANNEL_START_NS = 4, 2_000.0
COLD = 0.5  # batch norm reads what a convolution wrote some time ago
TRANSFORMED_NS = 0.82  # an element of a block that normalises a channel, of four on an SM
# Sums of channels: a round of a block that shares its SM, of one alone; a wave of blocks, of so many an SM.
STATISTICS, GRADIENT_SUMS, SUMMING_BLOCKS = (645.0, 1_674.0, 1_827.0), (267.0, 732.0, 3_714.0), 3
CHANNELS_STREAM = 0.93  # share of the streaming bandwidth
ROWS_AT_ONCE, ROUNDS_ADD_UP = 4, 3.0  # loads of a thread before it computes; exponent that joins their waiting
# Max pooling: instructions of an output; of a pixel of the input backwards, with a stride and without one.
POOLED, POOLED_LAST, POOLED_ROWS = 430.0, 500.0, 2
UNPOOLED, UNPOOLED_DENSE, UNPOOLED_LAST, UNPOOLED_LAST_DENSE = 330.0, 500.0, 235.0, 740.0
# Group norm: a block reduces what its threads have; a thread's round of loads, of tensors in the L2 cache and others.
MOMENTS_BLOCK_NS, MOMENTS_CACHED_NS, MOMENTS_ROUND_NS = 2_600.0, 240.0, 420.0
PAIRS_BLOCK_NS = 1_000.0  # likewise for the gradients of group norm, whose blocks reduce pairs of sums
# A thread of a channel goes through the images for its gradient: time of one; images at most.
IMAGE_NS, SUMMED_IMAGES = 280.0, 128


def _largest(what: Kernel) -> Shape:
    return max(what.sizes, key=elements, default=())


def _count(what: Kernel, per_thread: int = 4) -> int:
    """The elements of the largest input; without sizes, those that the grid covers."""
    return elements(_largest(what)) if any(what.sizes) else prod(what.grid) * prod(what.block) * per_thread


def _item(name: KernelName) -> float:
    types = [one for one in name.arguments if re.search(r"[Ff]loat|Half|double", one)]
    return item_nbytes(types[0] if types else "float")


def _types(name: KernelName) -> list[str]:
    return [one for one in name.arguments if not re.match(r"(true|false|\(|-?\d)", one)] or ["float"]


def _passes(reads: float, writes: float, instructions: float = 10.0, start_ns: float = 0.0) -> Model:
    def model(machine: Machine, what: Kernel, name: KernelName) -> float:
        count = _count(what)
        memory = machine.memory_ns(count * item_nbytes(_types(name)[0]) * (reads + writes), blocks=prod(what.grid))
        return start_ns + overlapped(memory, machine.issue_ns(count * instructions))

    return model


def _softmax_rows(machine: Machine, what: Kernel, name: KernelName) -> float:
    """The time of a softmax over rows: maximum, sum, output: three readings, the second and third from the L2 cache if
    the rows in flight fit it.
    """
    count, rows = _count(what), prod(what.grid)
    item = item_nbytes(_types(name)[0])
    in_flight = min(rows, machine.sms * SOFTMAX_BLOCKS) * count / rows * item / machine.gpu.memory.l2_nbytes
    hits = min(max((UNCACHED - in_flight) / (UNCACHED - CACHED), 0.0), 1.0)
    memory = machine.memory_ns(count * item * (2 + 2 * (1 - hits)))
    exponential = 1.0 if "LogSoftMax" in name.text else ROW_EXPONENTIAL
    work = machine.issue_ns(count * (ROW_ITEM_HALF if item < 4 else ROW_ITEM) * exponential)
    return overlapped(memory, work + ceil(rows / (machine.sms * SOFTMAX_BLOCKS)) * ROW_NS, exponent=ROW_ADD_UP)


def _softmax_in_registers(machine: Machine, what: Kernel, name: KernelName) -> float:
    """A block of 1,024 threads holds a row, and waits for its loads and reductions; up to six items of a thread leave
    room for a second block.
    """
    shape = _largest(what)
    held = ceil((shape[-1] if shape else 4096) / max(what.block[0], 1))
    row = (HELD_NS + HELD_ITEM_NS * held) / SOFTMAX_BLOCKS if held <= HELD_BY_TWO else HELD_ALONE_NS
    return max(ceil(prod(what.grid) / machine.sms) * row, _passes(1, 1)(machine, what, name))


def _channels_softmax(again: int, passes: float, half: float, whole: float) -> Model:
    """The model of softmax over channels: a thread for each pixel goes through them, three times forward. `again`: how
    often an array is read once more, from the L2 cache if the pixels under way fit it. Instructions for an item of 16
    bits, and of others.
    """

    def model(machine: Machine, what: Kernel, name: KernelName) -> float:
        count, shape, threads = _count(what), _largest(what), prod(what.grid) * prod(what.block)
        channels, item = shape[1] if len(shape) > 1 else 1, item_nbytes(_types(name)[0])
        in_flight = min(threads * channels, count) * item / machine.gpu.memory.l2_nbytes
        hits = min(max((UNCACHED - in_flight) / (UNCACHED - CACHED), 0.0), 1.0)
        memory = machine.memory_ns(count * item * (4 - again * hits))
        work = machine.issue_ns(count * (half if item < 4 else whole))
        waits = ceil(count / channels / threads) * channels * passes * CHANNEL_NS
        return max(overlapped(memory, work, exponent=CHANNELS_ADD_UP), waits)

    return model


def _rows(inputs: int, start_ns: float, per_row: float, per_element: float, exponent: float) -> Model:
    """The model of normalisation with a block per row that reads its inputs twice and writes once; instructions per row
    and element. `exponent`: joins bytes and instructions, which follow one another within a block.

    The second reading comes from L1 if the rows in flight fit it, else from L2, else from memory.
    """

    def model(machine: Machine, what: Kernel, name: KernelName) -> float:
        count, rows = _count(what), prod(what.grid)
        item = item_nbytes(name.arguments[0] if name.arguments else "float")
        memory = machine.memory_ns(count * item * (inputs + 1)) / NORM_STREAM
        resident = max(machine.gpu.limits.threads_per_sm // max(prod(what.block), 1), 1)
        again = float(count * item * inputs)
        in_flight = again / rows * min(resident, max(rows // machine.sms, 1))
        missed = min(max(in_flight / (ROW_KEPT * machine.gpu.limits.shared_nbytes_per_sm) - 1.0, 0.0), 1.0)
        fits = in_flight * machine.sms <= machine.gpu.memory.l2_nbytes
        memory += missed * again / (machine.l2_gb_per_s * NORM_L2 if fits else machine.memory_gb_per_s)
        busy = machine.issue_ns(rows * per_row + count * per_element)
        return start_ns + overlapped(memory, busy, exponent=exponent)

    return model


def _is_rms(name: KernelName) -> bool:
    return bool(name.arguments) and name.arguments[-1] == "true"


def _layer_norm(machine: Machine, what: Kernel, name: KernelName) -> float:
    figures = (22_300.0, 7.2) if _is_rms(name) else (42_500.0, 32.0)
    return _rows(1, 1_040.0, *figures, 1.7)(machine, what, name)


def _layer_norm_gradient(machine: Machine, what: Kernel, name: KernelName) -> float:
    figures = (18_700.0, 35.3) if _is_rms(name) else (23_900.0, 38.4)
    return _rows(2, 750.0, *figures, 3.7)(machine, what, name)


def _column_sums(machine: Machine, what: Kernel, name: KernelName) -> float:
    """The time of normalisation's weight gradients, 32 columns a block. GammaBetaBackwardCUDAKernelTemplate says how
    many threads a column has in a block, and how many rows a round: a block waits for each round's loads. Where a warp
    is a block, there are enough to fill the GPU.
    """
    item = item_nbytes(name.arguments[0] if name.arguments else "float")
    count, blocks = _count(what), prod(what.grid)
    memory = machine.memory_ns(count * item * 2)
    high, rows = (int(re.sub(r"\D", "", one) or 0) for one in (*name.arguments, "", "", "", "", "")[3:5])
    if high == 1:
        return COLUMNS_START_NS + memory / (WARP_COLUMNS_HALF if item < 4 else WARP_COLUMNS)
    rounds = ceil(count / (what.grid[0] * 32) / ((rows or 256) * what.grid[1]))
    waits = rounds * (COLUMNS_RMS_NS if _is_rms(name) else COLUMNS_NS) * ceil(blocks / machine.sms) ** COLUMNS_WAVE
    return COLUMNS_START_NS + overlapped(memory, machine.loaded_ns(waits), exponent=COLUMNS_ADD_UP)


def _group_norm(instructions: float, inputs: int, block_ns: float) -> Model:
    """The model of group norm: a block for each group, or each channel of an image, whose threads wait for each of
    their items.
    """

    def model(machine: Machine, what: Kernel, name: KernelName) -> float:
        count, blocks, threads = _count(what), prod(what.grid), prod(what.block)
        nbytes = count * _item(name) * inputs
        resident = min(machine.gpu.limits.threads_per_sm // threads, sums.MOST_BLOCKS)
        waves = max(blocks / (machine.sms * resident), 1.0)
        round_ns = MOMENTS_CACHED_NS if nbytes <= machine.gpu.memory.l2_nbytes / 2 else MOMENTS_ROUND_NS
        waits = ceil(count / blocks / threads) * waves * round_ns
        dealt = max(waves * block_ns, machine.dealt_out_ns(blocks))
        return dealt + overlapped(machine.memory_ns(nbytes), machine.issue_ns(instructions * count), waits)

    return model


def _gradient_of_images(machine: Machine, what: Kernel, name: KernelName) -> float:
    images = min(what.sizes[0][0], SUMMED_IMAGES) if what.sizes and what.sizes[0] else 1
    return 800.0 + images * IMAGE_NS


def _channels_last_norm(reads: float, writes: float, instructions: float, round_ns: float = 0.0) -> Model:
    """The model of batch norm, channels last. `round_ns`: of a block, which loads a few rows, waits for them and
    computes before it loads the next ones; four blocks of an SM do so at once.
    """

    def model(machine: Machine, what: Kernel, name: KernelName) -> float:
        count, blocks = _count(what), prod(what.grid)
        nbytes = count * _item(name) * (reads + writes)
        memory = machine.memory_ns(nbytes, cold=COLD) / CHANNELS_STREAM
        rounds = count / (blocks * prod(what.block) * ROWS_AT_ONCE) * ceil(blocks / (machine.sms * 4))
        waits = machine.loaded_ns(round_ns) * rounds
        return overlapped(memory, machine.issue_ns(count * instructions), waits, exponent=ROUNDS_ADD_UP)

    return model


def _channels_last_sums(inputs: int, round_ns: float, alone_ns: float, wave_ns: float) -> Model:
    """The model of statistics of channels, or sums for their gradients: threads go through rows of pixels, four loads
    at a time. `round_ns`: what a block takes of its SM for one such round; `alone_ns`: at least, however few blocks
    share the SM. The last wave of blocks begins where others have ended: the more waves, the less it is waited for.
    """

    def model(machine: Machine, what: Kernel, name: KernelName) -> float:
        count, channels = _count(what), _largest(what)[1] if len(_largest(what)) > 1 else 1
        rounds = ceil(count / channels / (what.grid[1] * what.block[1] * ROWS_AT_ONCE))
        waves = prod(what.grid) / (machine.sms * SUMMING_BLOCKS)
        full = int(waves)
        last = max(alone_ns, (waves - full) * SUMMING_BLOCKS * round_ns) if waves > full else 0.0
        waited = min(1.0, SUMMING_BLOCKS / waves)
        waits = rounds * (full * SUMMING_BLOCKS * round_ns + last * waited) + ceil(waves) * wave_ns
        return overlapped(machine.memory_ns(count * _item(name) * inputs), waits, exponent=2.0)

    return model


def _channel_norm(cached_ns: float, uncached_ns: float, beside_ns: float, kept: float, inputs: int) -> Model:
    """The model of batch norm for channels-first data: a block per channel, four of them on an SM, whose threads go
    through pixels and images in rounds. `beside_ns`: more of a round for each other block of the SM; `kept`: share of
    the L2 cache from which on a round waits for memory; `inputs`: passes over one.
    """

    def model(machine: Machine, what: Kernel, name: KernelName) -> float:
        shape, (across, down) = _largest(what), what.block[:2]
        rounds = ceil(prod(shape[2:]) / across) * ceil(shape[0] / down) if len(shape) > 1 else 1
        nbytes = prod(shape) * _item(name)
        uncached = min(nbytes * ceil(inputs / 2) / (kept * machine.gpu.memory.l2_nbytes), 1.0)
        whole, left = divmod(prod(what.grid), int(machine.sms) * CHANNEL_BLOCKS)
        turn = cached_ns + (uncached_ns - cached_ns) * uncached
        waits = whole * (turn + beside_ns * (CHANNEL_BLOCKS - 1))
        waits += turn + beside_ns * (ceil(left / machine.sms) - 1) if left else 0.0
        return CHANNEL_START_NS + overlapped(rounds * waits, machine.memory_ns(nbytes * inputs), exponent=2.4)

    return model


def _channel_transform(machine: Machine, what: Kernel, name: KernelName) -> float:
    count, shape = _count(what), _largest(what)
    images = shape[0] * shape[1] if len(shape) > 1 else 1
    blocks = prod(what.grid)
    of_block = ceil(blocks / (machine.sms * 4)) * count / blocks * TRANSFORMED_NS
    whole = overlapped(machine.memory_ns(2 * count * _item(name)), machine.issue_ns(67.0 * count + 10_000.0 * images))
    return max(whole, of_block)


def _lookup(uncached_ns: float, cached_ns: float, item_ns: float) -> Model:
    def model(machine: Machine, what: Kernel, name: KernelName) -> float:
        shapes = [shape for shape in what.sizes if shape]
        targets = elements(shapes[1]) if len(shapes) > 1 else prod(what.grid) * prod(what.block)
        rounds = ceil(targets / (prod(what.grid) * prod(what.block)))
        cached = _count(what) * _item(name) <= machine.gpu.memory.l2_nbytes / 2
        return rounds * overlapped(cached_ns if cached else uncached_ns, item_ns * prod(what.block))

    return model


def _picture_loss(machine: Machine, what: Kernel, name: KernelName) -> float:
    return _lookup(TARGET_NS, CACHED_TARGET_NS, TARGET_ITEM_NS)(machine, what, name) + prod(what.grid) * PICTURE_NS


def _max_pool(machine: Machine, what: Kernel, name: KernelName) -> float:
    """The time of max pooling: forward an output a thread; its window is not told. Channels last, a block's rows of the
    grid's last dimension share the outputs' rows, two each.
    """
    shape, item = _largest(what), item_nbytes(_types(name)[0])
    count = _count(what)
    last, outputs = "nhwc" in name.base, prod(what.grid) * prod(what.block)
    if last and len(shape) > 3:
        high = min(what.grid[2] * what.block[2] * POOLED_ROWS, shape[2])
        outputs = count * high**2 // shape[2] ** 2
    work = machine.issue_ns((POOLED_LAST if last else POOLED) * outputs)
    return overlapped(machine.memory_ns(count * item + outputs * (item + 8)), work)


def _max_pool_gradient(machine: Machine, what: Kernel, name: KernelName) -> float:
    """A pixel of the input looks through the windows that have it: many without a stride."""
    count, item = _count(what), item_nbytes(_types(name)[0])
    shapes = [shape for shape in what.sizes if len(shape) > 3]
    dense = len(shapes) > 1 and shapes[0] == shapes[1]
    if "nhwc" in name.base:
        channels = shapes[0][1] if shapes else what.block[0]
        lanes = ceil(channels / what.block[0]) * what.block[0] / channels
        work = machine.issue_ns(count * lanes * (UNPOOLED_LAST_DENSE if dense else UNPOOLED_LAST))
    else:
        work = machine.issue_ns(count * (UNPOOLED_DENSE if dense else UNPOOLED))
    return overlapped(machine.memory_ns(count * item, blocks=prod(what.grid)), work)


def _small(start_ns: float) -> Model:
    """The model of kernels over channels or groups alone."""
    return lambda machine, what, name: start_ns


def _warp_softmax(machine: Machine, what: Kernel, name: KernelName) -> float:
    """The time of softmax_warp_forward<input, output, accumulator, exponent of the padded row, logarithm, ...> and its
    backward.
    """
    back = "backward" in name.base
    lane, half, whole, logarithm, add_up = WARP_BACKWARD if back else WARP_FORWARD
    count, shape = _count(what), _largest(what)
    item = item_nbytes(name.arguments[0] if name.arguments else "float")
    padded = 2 ** integer(name.arguments[3], 5) if len(name.arguments) > 4 else 32
    per_item = (half if item < 4 else whole) * (logarithm if "true" in name.arguments[4:5] else 1.0)
    rows = count / (shape[-1] if shape else padded)
    work = machine.issue_ns(rows * (what.block[0] * lane + padded * per_item))
    memory = machine.memory_ns(count * item * (3 if back else 2), blocks=prod(what.grid))
    return 1_000.0 + overlapped(memory, work, exponent=add_up)


RULES: tuple[tuple[str, str, Model], ...] = (
    (r"^reduce_kernel$", "reduction", sums.ns),
    (r"^cunn_SoftMaxForward$", "softmax", _softmax_rows),
    (r"^cunn_SpatialSoftMaxForward", "softmax", _channels_softmax(2, 3, 165.0, 95.0)),
    (r"^cunn_SpatialSoftMaxBackward", "softmax", _channels_softmax(1, 1.3, 120.0, 75.0)),
    (r"^cunn_SoftMaxForwardReg", "softmax", _softmax_in_registers),
    (r"^cunn_SoftMaxForward", "softmax", _passes(1, 1, 85.0)),
    (r"^cunn_SoftMaxBackward$", "softmax", _passes(3.25, 1)),
    (r"^cunn_SoftMaxBackward", "softmax", _passes(2.1, 1)),
    (r"^softmax_warp", "softmax", _warp_softmax),
    (r"^nll_loss2d_forward_size_average", "loss", _small(0.0)),
    (r"^nll_loss2d_backward", "loss", _lookup(GRADIENT_NS, CACHED_GRADIENT_NS, PICTURE_ITEM_NS)),
    (r"^nll_loss2d", "loss", _picture_loss),
    (r"^nll_loss\w*backward", "loss", _lookup(GRADIENT_NS, CACHED_GRADIENT_NS, GRADIENT_ITEM_NS)),
    (r"^nll_loss", "loss", _lookup(TARGET_NS, CACHED_TARGET_NS, TARGET_ITEM_NS)),
    (r"layer_norm_grad_input|LayerNormBackward", "layer norm", _layer_norm_gradient),
    (r"layer_norm|LayerNormForward|rms_norm", "layer norm", _layer_norm),
    (r"RowwiseMoments", "group norm", _group_norm(59.0, 1, MOMENTS_BLOCK_NS)),
    (r"ComputeInternalGradients", "group norm", _group_norm(85.0, 2, PAIRS_BLOCK_NS)),
    (r"GammaBetaBackwardCUDAKernel1", "group norm", _gradient_of_images),
    (r"GammaBetaBackwardCUDAKernel\d|ComputeFusedParams|ComputeBackwardFusedParams", "group norm", _small(800.0)),
    (r"GammaBetaBackward|cuComputeGradGammaBeta|cuComputePartGrad", "layer norm", _column_sums),
    (r"batch_norm_collect_statistics_channels_last", "batch norm", _channels_last_sums(1, *STATISTICS)),
    (r"batch_norm_backward_reduce_channels_last", "batch norm", _channels_last_sums(2, *GRADIENT_SUMS)),
    (r"batch_norm_backward_elemt_channels_last", "batch norm", _channels_last_norm(2, 1, 45.0, 1_000.0)),
    (r"batch_norm_transform_input_channels_last", "batch norm", _channels_last_norm(1, 1, 40.0, 800.0)),
    (r"batch_norm_collect_statistics", "batch norm", _channel_norm(230.0, 405.0, 51.0, 1.0, 1)),
    (r"batch_norm_transform_input", "batch norm", _channel_transform),
    (r"batch_norm_backward", "batch norm", _channel_norm(352.0, 893.0, 103.0, 0.73, 4)),
    (r"batch_norm|group_norm|instance_norm", "batch norm", _channels_last_norm(2, 1, 50.0)),
    (r"max_pool_backward", "pooling", _max_pool_gradient),
    (r"max_pool_forward|max_pool2d_with_indices", "pooling", _max_pool),
)
"""Pattern of a kernel's name, family of kernels, model."""
