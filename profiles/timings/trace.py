"""Turns torch.profiler traces into what the hook would have sent: signatures, with the duration that a real GPU took
for each.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

from formats.files import MOST_TRACE_NBYTES, read_bytes
from profiles.signature import Conv, Copy, Gemm, Kernel, Memset, Rnn, Shape, Signature, format_signature
from profiles.timings.calls import DTYPES, NORMS, attention, batch_norm, recurrent
from profiles.timings.layouts import channels_last, with_layout

Event = dict[str, Any]
Span = tuple[float, float]
"""The start and end, in microseconds."""
DEVICE = ("kernel", "gpu_memset", "gpu_memcpy")
MATRIX_OPS = ("aten::mm", "aten::addmm", "aten::bmm")
ADDING_OPS = ("aten::addmm",)
RECURRENT_OPS = ("aten::_cudnn_rnn", "aten::_cudnn_rnn_backward")
CONVOLUTIONS = ("aten::cudnn_convolution", "aten::cudnn_convolution_transpose", "aten::convolution_backward")
TENSOR_CORES_F32 = "tf32|^nvjet_|s1688gemm"
"""Matches names of products of 32-bit numbers that tensor cores compute."""
PRODUCTS_OF_PIXELS, PRODUCTS_BY_IMAGES = r"^nvjet_.*_NN[NT]$", r"^nvjet_.*_NT[NT]$|cutlass_\d+_.*_nt_align"
"""Match names of products that are data gradients of 1x1 convolutions: channels last, and channels first."""
VECTORS_F32 = "ffma|winograd|fft2d|simt_sgemm|f32f32_f32f32_f32"
"""Matches names of convolutions of 32-bit numbers without tensor cores."""
ROUNDED = "may be rounded"
"""The name of an argument that is added to backward convolutions."""
TF32_ARGUMENTS = {"aten::cudnn_convolution": 8, "aten::cudnn_convolution_transpose": 9}
ATTENTION_OPS = ("aten::_cudnn_attention_forward", "aten::_cudnn_attention_backward")


@dataclass(frozen=True, slots=True)
class TracedWork:
    """One signature's execution: a kernel, or all device work of one library call."""

    signature: str
    category: str
    """The row of the error tables that it belongs to: see ``category_of``."""
    at_us: float
    for_us: float
    overlap: float
    """The share of its duration during which an NCCL kernel was running."""
    shared: float = 0.0
    """The share of its duration during which other work of another stream was running, which is not NCCL's."""
    kernels: int = 1
    """The number of kernels that it consists of, one after the other."""


def load(path: Path) -> list[Event]:
    """Reads the events of a trace. Raises OSError, or what json, a missing key or another type raises, for a file that
    is no trace.
    """
    events: list[Event] = json.loads(read_bytes(path, MOST_TRACE_NBYTES))["traceEvents"]
    return events


def steps_in(events: list[Event]) -> int:
    """The number of training steps that the profiler was told of; a trace without any counts as one step."""
    return max(len({e["name"] for e in events if str(e.get("name", "")).startswith("ProfilerStep#")}), 1)


def works(events: list[Event], without: str = "") -> list[TracedWork]:
    """All device work except NCCL's, in order of time. `without`: a range; what was launched within it is left out."""
    _tell_gradients(events)
    left_out = launched_within(events, without) if without else frozenset()
    chains = ops_of_launches(events)
    nccl = sorted((e["ts"], e["ts"] + e["dur"]) for e in events if _is_nccl(e))
    own = [e for e in events if e.get("cat") in DEVICE and not _is_nccl(e)]
    others = _by_other_streams(own)
    groups: dict[Any, list[Event]] = defaultdict(list)
    for number, event in enumerate(own):
        if event["args"]["correlation"] in left_out:
            continue
        op = chains.get(event["args"]["correlation"])
        key = call_of(op, event["name"])
        groups[key if key is not None else number].append(event)
    found = [_work(members, chains, nccl, others) for members in groups.values()]
    return sorted(found, key=lambda one: one.at_us)


def _stream(event: Event) -> Any:
    return event["args"].get("stream")


def _by_other_streams(events: list[Event]) -> dict[Any, list[Span]]:
    """For each stream, the spans in which the other streams were running something."""
    streams = {_stream(event) for event in events}
    return {
        stream: _merged((e["ts"], e["ts"] + e["dur"]) for e in events if _stream(e) != stream) for stream in streams
    }


def _merged(spans: Iterable[Span]) -> list[Span]:
    """The union of the spans: disjoint and in order."""
    merged: list[Span] = []
    for start, end in sorted(spans):
        if merged and start <= merged[-1][1]:
            merged[-1] = merged[-1][0], max(end, merged[-1][1])
        else:
            merged.append((start, end))
    return merged


def _is_nccl(event: Event) -> bool:
    return event.get("cat") == "kernel" and str(event["name"]).startswith("ncclDevKernel")


def ops_of_launches(events: list[Event]) -> dict[int, Event]:
    """The innermost op around each launching call, by the correlation number of the launch."""
    ops: dict[int, list[Event]] = defaultdict(list)
    calls: dict[int, list[tuple[float, int]]] = defaultdict(list)
    for event in events:
        if event.get("cat") == "cpu_op":
            ops[event["tid"]].append(event)
        elif event.get("cat") in ("cuda_runtime", "cuda_driver") and "correlation" in event.get("args", {}):
            calls[event["tid"]].append((event["ts"], event["args"]["correlation"]))
    found: dict[int, Event] = {}
    for thread, launches in calls.items():
        waiting = sorted(ops[thread], key=lambda e: (e["ts"], -e["dur"]))
        stack: list[Event] = []
        at = 0
        for ts, correlation in sorted(launches):
            while at < len(waiting) and waiting[at]["ts"] <= ts:
                stack.append(waiting[at])
                at += 1
            stack = [op for op in stack if op["ts"] + op["dur"] >= ts]
            if stack:
                found[correlation] = max(stack, key=lambda op: op["ts"])
    return found


def launched_within(events: list[Event], name: str) -> frozenset[int]:
    """Correlation numbers of launches within ranges of that name."""
    ranges: dict[int, list[Span]] = defaultdict(list)
    for event in events:
        if event.get("cat") == "user_annotation" and event["name"] == name:
            ranges[event["tid"]].append((event["ts"], event["ts"] + event["dur"]))
    spans = {thread: _merged(found) for thread, found in ranges.items()}
    return frozenset(
        event["args"]["correlation"]
        for event in events
        if event.get("cat") in ("cuda_runtime", "cuda_driver")
        and "correlation" in event.get("args", {})
        and _overlap(event["ts"], event["ts"] + event["dur"], spans.get(event["tid"], [])) > 0
    )


def call_of(op: Event | None, kernel: str) -> tuple[int, str] | None:
    """Identifies the library call to which a kernel belongs: its kernels share a key, since the emulated library makes
    one signature of them; None: the program's own launch.
    """
    if op is None:
        return None
    name, number = op["name"], op["args"].get("External id")
    if name in MATRIX_OPS or name in ATTENTION_OPS:
        return None if "at::" in kernel else (number, name)
    if name in RECURRENT_OPS:
        return None if "at::" in kernel else (number, _recurrent_direction(name, kernel))
    if name in CONVOLUTIONS:
        return number, _conv_direction(op, kernel)
    if name in NORMS:
        return None if "at::" in kernel else (number, name)
    return None


def _conv_direction(op: Event, kernel: str) -> str:
    """The direction of a convolution. Both gradients run under one op. The data gradient's kernels say so, are products
    of two matrices that are not transposed (for images channels first: of the first one transposed, column by column),
    or those of spectra; helpers belong to the weights'. A transposed convolution computes what a convolution's data
    gradient does, and its own data gradient is a convolution.
    """
    transposed = _is_transposed(op["name"], op["args"])
    if op["name"] != "aten::convolution_backward":
        return "dgrad" if transposed else "fwd"
    if transposed:
        return "fwd" if re.search("fprop|fwd", kernel.lower()) else "wgrad"
    weights = op["args"]["Input Dims"][2]
    by_images = prod(weights[2:]) == 1 and _layout(op["args"], weights, op["name"]) == "nchw"
    data = r"dgrad|fft2d|cf32cf32|" + (PRODUCTS_BY_IMAGES if by_images else PRODUCTS_OF_PIXELS)
    return "dgrad" if re.search(data, kernel, re.IGNORECASE) else "wgrad"


def _is_transposed(name: str, args: dict[str, Any]) -> bool:
    return name == "aten::cudnn_convolution_transpose" or (
        name == "aten::convolution_backward" and args["Concrete Inputs"][7] == "True"
    )


def _recurrent_direction(op: str, kernel: str) -> str:
    """The direction of a recurrent layer. One op computes both gradients: those of the weights are products with a
    transposed right-hand side, and sums over the steps for the biases.
    """
    if not op.endswith("backward"):
        return "fwd"
    return "wgrad" if "_nt_" in kernel or "bp2" in kernel else "dgrad"


def _work(
    members: list[Event], chains: dict[int, Event], nccl: list[Span], others: Mapping[Any, list[Span]]
) -> TracedWork:
    main = max(members, key=lambda e: e["dur"])
    op = chains.get(main["args"]["correlation"])
    total = sum(e["dur"] for e in members)
    beside = sum(_overlap(e["ts"], e["ts"] + e["dur"], nccl) for e in members)
    shared = sum(_overlap(e["ts"], e["ts"] + e["dur"], others[_stream(e)]) for e in members)
    what = signature_of(main, op)
    kernels = len(members)
    if isinstance(what, Rnn):
        # Layers run on streams of cuDNN's own, side by side. Where none runs, the call waits for the host's launches.
        total, shared, kernels = _covered(members), 0.0, 1
    elif isinstance(what, Conv) and len({_stream(e) for e in members}) > 1:
        total, shared = _covered(members), 0.0  # groups, on streams of cuDNN's own
    by = total or 1.0
    return TracedWork(
        format_signature(what), category_of(what), members[0]["ts"], total, beside / by, shared / by, kernels
    )


def _covered(members: list[Event]) -> float:
    """The time in which at least one of them runs."""
    found, until = 0.0, 0.0
    for begin, end in sorted((e["ts"], e["ts"] + e["dur"]) for e in members):
        found += max(0.0, end - max(begin, until))
        until = max(until, end)
    return found


def _overlap(start: float, end: float, spans: list[Span]) -> float:
    last = bisect_right(spans, (end, end))
    return sum(max(0.0, min(end, b) - max(start, a)) for a, b in spans[max(0, last - 8) : last])


def signature_of(event: Event, op: Event | None) -> Signature:
    """The signature whose cost the hook would have asked for."""
    kernel = str(event["name"])
    if event["cat"] == "gpu_memset":
        return Memset(event["args"].get("bytes", 0))
    if event["cat"] == "gpu_memcpy":
        found = re.search(r"(HtoD|DtoH|DtoD|PtoP)", kernel)
        direction = {"HtoD": "h2d", "DtoH": "d2h", "DtoD": "d2d", "PtoP": "p2p"}[found[1]] if found else "d2d"
        return Copy(direction, event["args"].get("bytes", 0), "pinned" if "Pinned" in kernel else "pageable")
    name, args = (op["name"], op["args"]) if op is not None else ("", {})
    sizes = _flat(args.get("Input Dims", []))
    if name in MATRIX_OPS and "at::" not in kernel:
        return _gemm(args, kernel, name, sizes)
    if op is not None and name in CONVOLUTIONS and "at::" not in kernel:
        return _conv(op, kernel, sizes)
    if name in ATTENTION_OPS and "at::" not in kernel:
        return attention(args, name, sizes)
    if name in RECURRENT_OPS and "at::" not in kernel:
        return recurrent(args, name, _recurrent_direction(name, kernel), sizes)
    if name in NORMS and "at::" not in kernel:
        return batch_norm(args, name, sizes)
    x, y, z = event["args"]["grid"]
    threads = event["args"]["block"]
    block = threads[0], threads[1], threads[2]
    shared_nbytes = event["args"].get("shared memory", 0)
    return with_layout(Kernel(kernel, (x, y, z), block, shared_nbytes, name, sizes), op)


def _flat(dims: list[Any]) -> tuple[Shape, ...]:
    """The profiler's input dims, lists of tensors flattened."""
    shapes: list[Shape] = []
    for one in dims:
        if one and isinstance(one[0], list):
            shapes += map(tuple, one)
        else:
            shapes.append(tuple(one))
    return tuple(shapes)


def _gemm(args: dict[str, Any], kernel: str, name: str, sizes: tuple[Shape, ...]) -> Gemm:
    strides = args.get("Input Strides") or [[]] * len(args["Input Dims"])
    # addmm adds what comes first, a matrix or a vector; compiled code gives the output, which comes last.
    first = 1 if name in ADDING_OPS else 0
    (a, a_strides), (b, b_strides) = list(zip(args["Input Dims"], strides, strict=False))[first : first + 2]
    dtype = next(DTYPES[one] for one in args["Input type"] if one in DTYPES)
    tensor_cores = re.search(TENSOR_CORES_F32, kernel) is not None
    compute = "tf32" if dtype == "f32" and tensor_cores else "f64" if dtype == "f64" else "f32"
    # cuBLAS thinks in columns: the product of rows a b is its product b a, and what PyTorch has as rows is not turned.
    return Gemm(
        call="cublasGemmEx",
        transa=_turned(b, b_strides),
        transb=_turned(a, a_strides),
        m=b[-1],
        n=a[-2],
        k=a[-1],
        batch=a[0] if len(a) == 3 else 1,
        a=dtype,
        b=dtype,
        c=dtype,
        compute=compute,
        epilogue="default",
        op=name,
        sizes=sizes,
    )


def _turned(dims: list[int], strides: list[int]) -> str:
    return "t" if strides and strides[-1] != 1 and strides[-2] == 1 else "n"


def _conv(op: Event, kernel: str, sizes: tuple[Shape, ...]) -> Conv:
    """The signature of a convolution. For a transposed one `x` is the output and `y` the input, as cuDNN is told."""
    name, args = op["name"], op["args"]
    dims, concrete = args["Input Dims"], args["Concrete Inputs"]
    transposed = _is_transposed(name, args)
    # Each operator lists its arguments in an order of its own. Forward ones do not name their output, so its shape is
    # computed from their arguments.
    if name == "aten::convolution_backward":
        out, given, w = dims[:3]
        stride, padding, dilation = (json.loads(concrete[at]) for at in (4, 5, 6))
        groups = int(concrete[9])
    else:
        given, w = dims[:2]
        padding = json.loads(concrete[2])
        if transposed:
            more, stride, dilation = (json.loads(concrete[at]) for at in (3, 4, 5))
            groups = int(concrete[6])
            out = [given[0], w[1] * groups] + [
                (given[2 + at] - 1) * stride[at] - 2 * padding[at] + dilation[at] * (w[2 + at] - 1) + more[at] + 1
                for at in range(len(w) - 2)
            ]
        else:
            stride, dilation = (json.loads(concrete[at]) for at in (3, 4))
            groups = int(concrete[5])
            out = [given[0], w[0]] + [
                (given[2 + at] + 2 * padding[at] - dilation[at] * (w[2 + at] - 1) - 1) // stride[at] + 1
                for at in range(len(w) - 2)
            ]
    x, y = (out, given) if transposed else (given, out)
    return Conv(
        direction=_conv_direction(op, kernel),
        x=tuple(x),
        w=tuple(w),
        y=tuple(y),
        padding=tuple(padding),
        stride=tuple(stride),
        dilation=tuple(dilation),
        groups=groups,
        dtype=_conv_dtype(name, args, kernel),
        layout=_layout(args, w, name),
        op=name,
        sizes=sizes,
    )


def _tell_gradients(events: list[Event]) -> None:
    """Adds to backward convolutions whether 32-bit operands may be rounded, which is an argument of forward ones only,
    if all forward ones of a trace agree.
    """
    convolutions = [e for e in events if e.get("cat") == "cpu_op" and e["name"] in CONVOLUTIONS]
    allowed = {found for e in convolutions if (found := _may_be_rounded(e["name"], e["args"]))}
    if len(allowed) == 1:
        for event in convolutions:
            event["args"][ROUNDED] = next(iter(allowed))


def _may_be_rounded(name: str, args: dict[str, Any]) -> str:
    """The argument: `True` or `False`; empty: the op does not say."""
    at, concrete = TF32_ARGUMENTS.get(name), args.get("Concrete Inputs") or []
    return str(concrete[at]) if at is not None and at < len(concrete) else str(args.get(ROUNDED, ""))


def _conv_dtype(name: str, args: dict[str, Any], kernel: str) -> str:
    """The dtype of a convolution. If nothing says whether 32-bit operands may be rounded, the kind of kernels does."""
    dtype, allowed = _math_dtype(args), _may_be_rounded(name, args)
    exact = allowed == "False" if allowed else re.search(VECTORS_F32, kernel)
    return "f32" if dtype == "tf32" and exact else dtype


def _math_dtype(args: dict[str, Any]) -> str:
    """The dtype in which cuDNN computes: unless it is told otherwise, PyTorch lets it round 32-bit operands to tf32."""
    dtype = DTYPES[args["Input type"][0]]
    return "tf32" if dtype == "f32" else dtype


def _layout(args: dict[str, Any], w: list[int], name: str) -> str:
    """The layout: PyTorch has cuDNN work on channels-last data if the input or the weights are."""
    strides = args.get("Input Strides") or []
    first = 1 if name == "aten::convolution_backward" else 0
    if len(strides) <= first + 1:
        return "nhwc"
    pairs = zip(args["Input Dims"][first : first + 2], strides[first : first + 2], strict=True)
    return "nhwc" if any(channels_last(*pair) for pair in pairs) else "nchw"


def category_of(what: Signature) -> str:
    """The row of the error tables: the kind of a library's work, or what a kernel computes."""
    if not isinstance(what, Kernel):
        return type(what).__name__.lower()
    for pattern, category in (
        ("unrolled_elementwise|WithCast|gpu_kernel_impl<", "element-wise, cast"),
        ("elementwise_kernel", "element-wise"),
        ("multi_tensor_apply", "optimizer, foreach"),
        ("SoftMax|softmax", "softmax"),
        ("layer_norm|GammaBeta|rms_norm", "layer norm"),
        ("batch_norm", "batch norm"),
        ("reduce_kernel", "reduction"),
        ("pool", "pooling"),
    ):
        if re.search(pattern, what.name):
            return category
    return "other"


def by_category(found: list[TracedWork]) -> Iterator[tuple[str, list[TracedWork]]]:
    groups: dict[str, list[TracedWork]] = defaultdict(list)
    for one in found:
        groups[one.category].append(one)
    yield from sorted(groups.items(), key=lambda item: -sum(one.for_us for one in item[1]))
