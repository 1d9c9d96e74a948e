"""cuDNN's workspaces, measured on an H200 with PyTorch 2.11: what its allocator was asked for; and its launches."""

import ctypes
import gzip
import itertools

import numpy as np
import pytest

from laboratory.fits.workspaces import LIST, left_out, read, write
from profiles.models.products.group_ways import launches_of_group, one_by_one
from profiles.signature import Conv

from .coordinator import gpu_attributes

F32, F16, BF16 = 0, 2, 9
LSTM, GRU, TANH = 2, 3, 1
STANDARD, PERSIST_STATIC, PERSIST_STATIC_SMALL = 0, 1, 3
PADDED_IO = 1

# mode, algorithm, dtype, input, hidden, layers, directions, batch, steps: workspace, reserve space
RNNS = [
    ((LSTM, STANDARD, F32, 512, 512, 1, 1, 32, 64), (42664448, 20971776)),
    ((LSTM, STANDARD, F32, 512, 1024, 1, 1, 32, 64), (81003008, 41943296)),
    ((LSTM, STANDARD, BF16, 1024, 1024, 2, 1, 64, 128), (153617152, 184549632)),
    ((LSTM, STANDARD, F32, 650, 650, 2, 1, 20, 35), (55777632, 20020256)),
    ((LSTM, STANDARD, F32, 256, 256, 2, 2, 16, 100), (69403008, 36045056)),
    ((LSTM, PERSIST_STATIC_SMALL, F32, 128, 128, 3, 1, 128, 256), (397411584, 285212928)),
    ((LSTM, PERSIST_STATIC, F16, 512, 512, 1, 1, 32, 64), (58982912, 10486016)),
    ((GRU, STANDARD, F32, 512, 512, 1, 1, 32, 64), (40174080, 25166080)),
    ((GRU, STANDARD, BF16, 100, 200, 1, 1, 20, 35), (10189024, 1680256)),
    ((TANH, STANDARD, F32, 512, 512, 1, 1, 32, 64), (35979776, 4194560)),
]


# On an H100, where PyTorch asked for its third algorithm if states were small: workspaces-h100.jsonl.gz,
# convolutions-h100.jsonl.gz and dense-h100.jsonl.gz of laboratory/rows/.
ON_H100 = [
    ((LSTM, PERSIST_STATIC_SMALL, F32, 28, 128, 1, 1, 512, 28), (166555904, 36700416)),
    ((GRU, PERSIST_STATIC_SMALL, F32, 64, 128, 2, 2, 256, 60), (251332864, 204472576)),
    ((TANH, PERSIST_STATIC_SMALL, F32, 128, 256, 1, 1, 64, 60), (64226048, 3932416)),
    ((TANH, PERSIST_STATIC_SMALL, F32, 16, 64, 3, 1, 4, 5), (25344800, 25856)),
    ((LSTM, PERSIST_STATIC_SMALL, F32, 512, 64, 4, 2, 128, 1), (75105536, 1507584)),
    ((LSTM, STANDARD, F32, 400, 1150, 3, 1, 40, 70), (212726400, 218960256)),
    ((GRU, STANDARD, F16, 768, 768, 2, 1, 96, 60), (79004672, 115015936)),
    ((GRU, STANDARD, F32, 640, 640, 4, 1, 80, 100), (184288128, 552960256)),
    ((GRU, STANDARD, F32, 800, 800, 3, 2, 32, 100), (320872960, 409600256)),
]
# The same with dropout.
DROPPED = [
    ((LSTM, STANDARD, F32, 650, 650, 2, 1, 32, 35), (65865728, 32123264)),
    ((LSTM, STANDARD, BF16, 384, 384, 2, 2, 96, 64), (119669760, 104988928)),
    ((GRU, STANDARD, F32, 256, 768, 2, 1, 64, 100), (147194624, 256205056)),
    ((GRU, STANDARD, F32, 768, 768, 2, 1, 16, 100), (75071872, 64051456)),
]


def made(c, name):
    out = ctypes.c_void_p()
    assert getattr(c, f"cudnnCreate{name}")(ctypes.byref(out)) == 0
    return out


@pytest.mark.parametrize(
    ("problem", "measured", "probability"), [(*one, 0.0) for one in RNNS + ON_H100] + [(*one, 0.1) for one in DROPPED]
)
def test_a_recurrent_network_takes_what_was_measured(running, problem, measured, probability):
    mode, algorithm, dtype, inputs, hidden, layers, directions, batch, steps = problem

    def program(rank):
        c = rank.c
        handle, net, data = made(c, ""), made(c, "RNNDescriptor"), made(c, "RNNDataDescriptor")
        dropout = made(c, "DropoutDescriptor")
        assert not c.cudnnSetDropoutDescriptor(dropout, handle, ctypes.c_float(probability), None, 0, 0)
        assert not c.cudnnSetRNNDescriptor_v8(
            net, algorithm, mode, 2, directions - 1, 0, dtype, 0, 1, inputs, hidden, hidden, layers, dropout, PADDED_IO
        )
        assert not c.cudnnSetRNNDataDescriptor(data, dtype, 0, steps, batch, inputs, None, None)
        work, reserve = ctypes.c_size_t(), ctypes.c_size_t()
        assert not c.cudnnGetRNNTempSpaceSizes(handle, net, 1, data, ctypes.byref(work), ctypes.byref(reserve))
        assert (work.value, reserve.value) == measured

    running(program)


@pytest.mark.parametrize(
    ("mode", "algorithm", "hidden", "call", "launches"),
    [
        (LSTM, STANDARD, 64, "cudnnRNNForward", 516),
        (LSTM, STANDARD, 64, "cudnnRNNBackwardData_v8", 516),
        (GRU, STANDARD, 256, "cudnnRNNBackwardData_v8", 516),
        (GRU, STANDARD, 512, "cudnnRNNBackwardData_v8", 772),
        (GRU, STANDARD, 512, "cudnnRNNBackwardWeights_v8", 12),
        (LSTM, PERSIST_STATIC, 64, "cudnnRNNForward", 12),
    ],
)
def test_the_host_launches_each_step_of_each_layer(running, mode, algorithm, hidden, call, launches):
    def program(rank):
        c = rank.c
        handle, net, data = made(c, ""), made(c, "RNNDescriptor"), made(c, "RNNDataDescriptor")
        assert not c.cudnnSetRNNDescriptor_v8(net, algorithm, mode, 2, 0, 0, F16, 0, 1, 64, hidden, hidden, 2, None, 0)
        assert not c.cudnnSetRNNDataDescriptor(data, F16, 0, 128, 4, 64, None, None)
        before = c.phantora_host_clock_ns()
        middle = (None,) if call == "cudnnRNNBackwardData_v8" else (0, None)
        assert not getattr(c, call)(handle, net, *middle, data)
        assert c.phantora_host_clock_ns() - before == 1_000 * launches

    running(program, host_ns__recurrent_kernel=1_000, host_ns__library=0)


NCHW, NHWC = 0, 1
FORWARD, DATA, FILTER = "Forward", "BackwardData", "BackwardFilter"

# direction, dtype, TF32, layout, batch, channels in and out, image, kernel, stride: workspace
CONVOLUTIONS = [
    ((FORWARD, F32, True, NCHW, 64, 256, 512, 28, 3, 1), 158859411),
    ((DATA, F32, True, NCHW, 128, 256, 256, 28, 3, 2), 130810003),
    ((FILTER, F32, True, NCHW, 128, 64, 64, 56, 3, 1), 207733415),
    ((FILTER, F32, True, NCHW, 256, 64, 256, 56, 1, 1), 16777616),
    ((FILTER, F32, False, NCHW, 32, 64, 64, 224, 3, 1), 1850277888),
    ((FORWARD, F32, True, NHWC, 64, 3, 64, 224, 3, 1), 38542096),
    ((FILTER, F32, True, NHWC, 128, 128, 128, 28, 3, 1), 8258199),
    ((FORWARD, BF16, False, NHWC, 64, 256, 256, 56, 3, 1), 131),
    ((FILTER, BF16, False, NHWC, 64, 64, 128, 112, 3, 1), 3834519),
    ((FILTER, BF16, False, NHWC, 64, 256, 256, 56, 3, 1), 16515735),
    ((FILTER, BF16, False, NHWC, 64, 256, 512, 28, 3, 1), 3932895),
    ((FORWARD, BF16, False, NCHW, 256, 3, 64, 224, 7, 2), 616612880),
    ((DATA, BF16, False, NCHW, 64, 3, 64, 224, 3, 1), 462431379),
    # Fourier's transform, on an H100: laboratory/rows/convolutions-h100.jsonl.gz
    ((DATA, F32, False, NCHW, 48, 64, 64, 224, 3, 1), 71303168),
    ((DATA, F32, False, NCHW, 48, 256, 256, 30, 3, 1), 392167424),
    ((DATA, F32, False, NCHW, 16, 64, 128, 112, 3, 1), 62390272),
    ((DATA, F32, False, NCHW, 48, 256, 512, 28, 3, 1), 0),
]


def tensor(c, kind, dtype, layout, dims):
    it = made(c, f"{kind}Descriptor")
    sizes = (ctypes.c_int * len(dims))(*dims)
    if kind == "Filter":
        assert not c.cudnnSetFilterNdDescriptor(it, dtype, layout, len(dims), sizes)
    else:
        order = [0, *range(2, len(dims)), 1] if layout == NHWC else range(len(dims))  # the outermost first
        strides, stride = [0] * len(dims), 1
        for dim in reversed(order):
            strides[dim] = stride
            stride *= dims[dim]
        assert not c.cudnnSetTensorNdDescriptor(it, dtype, len(dims), sizes, (ctypes.c_int * len(dims))(*strides))
    return it


def described(c, direction, dtype, tf32, layout, batch, c_in, c_out, image, kernel, stride):
    out = (image + 2 * (kernel // 2) - kernel) // stride + 1
    x = tensor(c, "Tensor", dtype, layout, (batch, c_in, image, image))
    w = tensor(c, "Filter", dtype, layout, (c_out, c_in, kernel, kernel))
    y = tensor(c, "Tensor", dtype, layout, (batch, c_out, out, out))
    how, pair = made(c, "ConvolutionDescriptor"), ctypes.c_int * 2
    assert not c.cudnnSetConvolutionNdDescriptor(
        how, 2, pair(kernel // 2, kernel // 2), pair(stride, stride), pair(1, 1), 1, F32
    )
    assert not c.cudnnSetConvolutionMathType(how, 1 if tf32 or dtype != F32 else 3)
    return {FORWARD: (x, w, how, y), DATA: (w, y, how, x), FILTER: (x, y, how, w)}[direction]


def workspace(c, direction, *problem):
    order, nbytes = described(c, direction, *problem), ctypes.c_size_t()
    ask = getattr(c, f"cudnnGetConvolution{direction}WorkspaceSize")
    assert not ask(None, *order, 1, ctypes.byref(nbytes))
    return nbytes.value


@pytest.mark.parametrize(("problem", "measured"), CONVOLUTIONS)
def test_a_convolution_takes_what_was_measured(running, problem, measured):
    def program(rank):
        assert workspace(rank.c, *problem) == pytest.approx(measured, rel=0.01, abs=1000)

    running(program)


def test_a_convolution_and_its_descriptors_have_prices_of_their_own(running):
    """PyTorch looks up how cuDNN is to do it, and makes descriptors: kinds of a host's description."""

    def program(rank):
        c = rank.c
        handle = made(c, "")
        before = c.phantora_host_clock_ns()
        x, w, how, y = described(c, FORWARD, F32, True, NCHW, 4, 16, 16, 8, 3, 1)
        assert c.phantora_host_clock_ns() - before == 4 * 2 + 1  # each is made and filled; one has a math type
        before = c.phantora_host_clock_ns()
        assert not c.cudnnConvolutionForward(handle, None, x, None, w, None, how, 1, None, 0, None, y, None)
        assert c.phantora_host_clock_ns() - before == 5_000 + 300

    running(program, host_ns__library=5_000, host_ns__library_query=1, host_ns__convolution=300)


@pytest.mark.parametrize(
    ("dtype", "dims", "forward", "backward"),
    [
        (F16, (16, 64, 256, 256), 3382940, 5593636),
        (F16, (16, 512, 32, 32), 426288, 701504),
        (F16, (48, 100, 30, 30), 279720, 461864),
        (F16, (2, 8, 8, 8), 1592, 2084),
        (F32, (64, 64, 56, 56), 1619252, 1071652),
        (F32, (48, 100, 30, 30), 697680, 461864),
        (F32, (32, 2048, 7, 7), 414000, 279712),
        (F32, (2, 8, 8, 16, 16), 34100, 23076),
        (F32, (512, 64, 1, 1), 5204, 4132),
        (BF16, (64, 64, 56, 56), 0, 0),
    ],
)
def test_a_batch_norm_takes_what_was_measured(running, dtype, dims, forward, backward):
    """With channels last, on an H100 and an H200. With channels first it takes nothing."""

    def program(rank):
        c, nbytes = rank.c, ctypes.c_size_t()
        handle = made(c, "")
        for layout in (NHWC, NCHW):
            x = tensor(c, "Tensor", dtype, layout, dims)
            if layout == NHWC and dims[2] == 1:  # as PyTorch describes it
                sizes = ctypes.c_int * 4
                assert not c.cudnnSetTensorNdDescriptor(x, dtype, 4, sizes(*dims), sizes(64, 1, 64, 64))
            got = []
            ask = c.cudnnGetBatchNormalizationForwardTrainingExWorkspaceSize
            assert not ask(handle, 2, 0, x, None, x, None, None, ctypes.byref(nbytes))
            got.append(nbytes.value)
            ask = c.cudnnGetBatchNormalizationBackwardExWorkspaceSize
            assert not ask(handle, 2, 0, x, None, x, None, x, None, None, ctypes.byref(nbytes))
            got.append(nbytes.value)
            assert got == ([forward, backward] if layout == NHWC else [0, 0])

    running(program)


EACH = 40
"""One in so many of the measured calls is asked for."""


@pytest.mark.parametrize("gpu", ["h100", "h200"])
def test_measured_convolutions_take_what_they_took(running, gpu):
    """Convolutions in one dimension or more, in groups, dilated, transposed: each call takes what its own form comes
    to, also where two GPUs differ.
    """

    def program(rank):
        c, off = rank.c, []
        every = [one for calls in read().values() for one in calls]
        differing = [one for one in every if one.gpu == gpu.upper()]
        assert len(differing) == 192
        for call in differing + [one for one in every if one.gpu == "ANY"][::EACH]:
            dtype, layout = {"f16": F16, "bf16": BF16}.get(call.kind, F32), NHWC if call.last else NCHW
            x, y = (tensor(c, "Tensor", dtype, layout, dims) for dims in (call.x, call.y))
            w = tensor(c, "Filter", dtype, layout, call.w)
            how, n = made(c, "ConvolutionDescriptor"), len(call.x) - 2
            sizes = ctypes.c_int * n
            assert not c.cudnnSetConvolutionNdDescriptor(
                how, n, sizes(), sizes(*[call.stride] * n), sizes(*[call.dilation] * n), 1, F32
            )
            assert not c.cudnnSetConvolutionGroupCount(how, call.groups)
            assert not c.cudnnSetConvolutionMathType(how, 3 if call.kind == "f32" else 1)
            direction, nbytes = {"fwd": FORWARD, "dgrad": DATA, "wgrad": FILTER}[call.direction], ctypes.c_size_t()
            order = {FORWARD: (x, w, how, y), DATA: (w, y, how, x), FILTER: (x, y, how, w)}[direction]
            ask = getattr(c, f"cudnnGetConvolution{direction}WorkspaceSize")
            assert not ask(None, *order, 1, ctypes.byref(nbytes))
            off.append(nbytes.value != call.nbytes)
        assert len(off) > 400
        assert sum(off) <= 0.02 * len(off)  # a few sizes were measured twice, or have no form

    running(program, **{key.replace(".", "__"): value for key, value in gpu_attributes(gpu).items()})


@pytest.mark.parametrize(
    ("kind", "good"),
    [
        (("HALF", "NHWC", "DGRAD"), 0.9),
        (("HALF", "NCHW", "FORWARD"), 0.83),
        (("TF32", "NHWC", "WGRAD"), 0.42),
        (("F32", "NHWC", "FORWARD"), 0.78),
    ],
)
def test_calls_of_shapes_that_are_left_out(kind, good):
    calls = [call for call in read()[kind] if call.gpu != "H200"]
    real = np.array([call.nbytes for call in calls])
    off = np.abs(left_out(calls, {"FORWARD": "fwd"}.get(kind[2], kind[2].lower())) - real)
    assert good <= (off <= np.maximum(0.01 * real, 1e5)).mean() < good + 0.05


def test_the_list_is_that_of_the_measured_calls(tmp_path):
    write(tmp_path / "calls.csv.gz")
    assert gzip.decompress((tmp_path / "calls.csv.gz").read_bytes()) == gzip.decompress(LIST.read_bytes())


def test_launches_and_prices_have_one_rule_for_groups_one_by_one(running):
    """It stands in C for the host's launches, and in Python for the cost of the same call."""
    named = {FORWARD: "fwd", DATA: "dgrad", FILTER: "wgrad"}

    def program(rank):
        c, told = rank.c, set()
        handle = made(c, "")
        for direction, dtype, layout, stride, (batch, side), (of, into), groups, taps in itertools.product(
            named,
            (F16, F32),
            (NCHW, NHWC),
            (1, 2),
            ((2, 8), (8, 8), (64, 14), (128, 28)),
            (
                (4, 4),
                (16, 16),
                (24, 24),
                (32, 32),
                (48, 48),
                (56, 56),
                (64, 64),
                (80, 80),
                (112, 112),
                (128, 128),
                (232, 232),
                (264, 264),
                (32, 64),
                (64, 128),
                (128, 64),
                (512, 256),
            ),
            (3, 4, 6, 9, 36),
            (3, 9),
        ):
            x = tensor(c, "Tensor", dtype, layout, (batch, of * groups, side * stride, side * stride))
            w = tensor(c, "Filter", dtype, layout, (into * groups, of, taps, taps))
            y = tensor(c, "Tensor", dtype, layout, (batch, into * groups, side, side))
            how, pair = made(c, "ConvolutionDescriptor"), ctypes.c_int * 2
            assert not c.cudnnSetConvolutionNdDescriptor(
                how, 2, pair(*[taps // 2] * 2), pair(stride, stride), pair(1, 1), 1, F32
            )
            assert not c.cudnnSetConvolutionGroupCount(how, groups)
            assert not c.cudnnSetConvolutionMathType(how, 1)
            first, second, out = {FORWARD: (x, w, y), DATA: (w, y, x), FILTER: (x, y, w)}[direction]
            before = c.phantora_host_clock_ns()
            run = getattr(c, f"cudnnConvolution{direction}")
            assert not run(handle, None, first, None, second, None, how, 1, None, ctypes.c_size_t(0), None, out, None)
            launches = (c.phantora_host_clock_ns() - before) // 1_000
            sizes = (
                (batch, of * groups, side * stride, side * stride),
                (into * groups, of, taps, taps),
                (batch, into * groups, side, side),
            )
            kinds = {F16: "f16", F32: "tf32"}[dtype], {NCHW: "nchw", NHWC: "nhwc"}[layout]
            one = Conv(named[direction], *sizes, (taps // 2,) * 2, (stride, stride), (1, 1), groups, *kinds, "", ())
            assert launches == one_by_one(one) * groups * launches_of_group(one), one
            told.add(launches)
        assert told == {0, *(groups * each for groups in (3, 4, 6, 9, 36) for each in (3, 4))}

    running(program, host_ns__launch=1_000, host_ns__library=0, host_ns__query=0)
