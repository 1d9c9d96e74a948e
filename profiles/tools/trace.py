"""torch.profiler traces turned into what the hook would have sent: signatures, with the duration that a real GPU took
for each.
"""

from __future__ import annotations

import gzip
import json
import re
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Event = dict[str, Any]
DEVICE = ("kernel", "gpu_memset", "gpu_memcpy")
MATRIX_OPS = ("aten::mm", "aten::addmm", "aten::bmm")
ATTENTION_OPS = ("aten::_cudnn_attention_forward", "aten::_cudnn_attention_backward")
DTYPES = {"float": "f32", "c10::BFloat16": "bf16", "c10::Half": "f16", "double": "f64", "long int": "i64", "int": "i32"}


@dataclass(frozen=True, slots=True)
class Work:
    """One signature's execution: a kernel, or all device work of one library call."""

    signature: str
    family: str
    at_us: float
    for_us: float
    overlap: float
    """Share of its duration during which an NCCL kernel was running."""


def load(path: Path) -> list[Event]:
    opener = gzip.open if path.suffix == ".gz" else open
    with opener(path, "rt") as file:
        events: list[Event] = json.load(file)["traceEvents"]
    return events


def works(events: list[Event]) -> list[Work]:
    """All device work but NCCL's, in order of time."""
    chains = ops_of_launches(events)
    nccl = sorted((e["ts"], e["ts"] + e["dur"]) for e in events if _is_nccl(e))
    groups: dict[Any, list[Event]] = defaultdict(list)
    for number, event in enumerate(e for e in events if e.get("cat") in DEVICE and not _is_nccl(e)):
        op = chains.get(event["args"]["correlation"])
        key = call_of(op, event["name"])
        groups[key if key is not None else number].append(event)
    found = [_work(members, chains, nccl) for members in groups.values()]
    return sorted(found, key=lambda one: one.at_us)


def _is_nccl(event: Event) -> bool:
    return event.get("cat") == "kernel" and str(event["name"]).startswith("ncclDevKernel")


def ops_of_launches(events: list[Event]) -> dict[int, Event]:
    """Correlation number -> innermost op around the launching call."""
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


def call_of(op: Event | None, kernel: str) -> tuple[int, str] | None:
    """Kernels of one library call share a key, since the emulated library makes one signature of them; None: the
    program's own launch.
    """
    if op is None:
        return None
    name, number = op["name"], op["args"].get("External id")
    if name in MATRIX_OPS or name in ATTENTION_OPS:
        return None if "at::" in kernel else (number, name)
    if name == "aten::cudnn_convolution":
        return number, "fwd"
    if name == "aten::convolution_backward":
        # Both gradients run under one op: the data gradient's kernels say so, helpers belong to the weights'.
        return number, "dgrad" if "dgrad" in kernel.lower() else "wgrad"
    return None


def _work(members: list[Event], chains: dict[int, Event], nccl: list[tuple[float, float]]) -> Work:
    main = max(members, key=lambda e: e["dur"])
    op = chains.get(main["args"]["correlation"])
    total = sum(e["dur"] for e in members)
    beside = sum(_overlap(e["ts"], e["ts"] + e["dur"], nccl) for e in members)
    signature = signature_of(main, op)
    return Work(
        signature, family_of(signature, main["name"]), members[0]["ts"], total, beside / total if total else 0.0
    )


def _overlap(start: float, end: float, spans: list[tuple[float, float]]) -> float:
    last = bisect_right(spans, (end, end))
    return sum(max(0.0, min(end, b) - max(start, a)) for a, b in spans[max(0, last - 8) : last])


def signature_of(event: Event, op: Event | None) -> str:
    name, dims, types, concrete = "", [], [], []
    if op is not None:
        args = op["args"]
        name, dims = op["name"], args.get("Input Dims", [])
        types, concrete = args.get("Input type", []), args.get("Concrete Inputs", [])
    sizes = json.dumps(dims)
    tail = f"{name};{sizes}"
    kernel = str(event["name"])
    if event["cat"] == "gpu_memset":
        return f"memset;{event['args'].get('bytes', 0)}"
    if event["cat"] == "gpu_memcpy":
        found = re.search(r"(HtoD|DtoH|DtoD|PtoP)", kernel)
        direction = {"HtoD": "h2d", "DtoH": "d2h", "DtoD": "d2d", "PtoP": "p2p"}[found[1]] if found else "d2d"
        return f"copy;{direction};{event['args'].get('bytes', 0)};{'pinned' if 'Pinned' in kernel else 'pageable'}"
    if name in MATRIX_OPS and "at::" not in kernel:
        a, b = [one for one in dims if len(one) >= 2][-2:]
        dtype = next(DTYPES[one] for one in types if one in DTYPES)
        batch = a[0] if len(a) == 3 else 1
        fields = ("cublasGemmEx", "n", "n", b[-1], a[-2], a[-1], batch, dtype, dtype, dtype, "f32", "")
        return ";".join(["gemm", *map(str, fields), tail])
    if name in ("aten::cudnn_convolution", "aten::convolution_backward"):
        return _conv(name, kernel, dims, types, concrete, tail)
    if name in ATTENTION_OPS and "at::" not in kernel:
        forward = name.endswith("forward")
        q, k, v = dims[:3] if forward else dims[1:4]
        dropout, causal = (concrete[9], concrete[10]) if forward else (concrete[13], concrete[14])
        shapes = ";".join("x".join(map(str, one)) for one in (q, k, v))
        flags = f"{int(causal == 'True')};{int(float(dropout or 0) > 0)}"
        return f"sdpa;{'fwd' if forward else 'bwd'};{shapes};{DTYPES[types[0]]};{flags};{tail}"
    grid, block = (",".join(map(str, event["args"][key])) for key in ("grid", "block"))
    return f"kernel;{kernel};{grid};{block};{event['args'].get('shared memory', 0)};{tail}"


def _conv(name: str, kernel: str, dims: list[Any], types: list[str], concrete: list[str], tail: str) -> str:
    if name == "aten::cudnn_convolution":
        direction, x, w = "fwd", dims[0], dims[1]
        padding, stride, dilation = (json.loads(concrete[at]) for at in (2, 3, 4))
        y = [x[0], w[0]] + [
            (x[2 + at] + 2 * padding[at] - dilation[at] * (w[2 + at] - 1) - 1) // stride[at] + 1
            for at in range(len(w) - 2)
        ]
    else:
        y, x, w = dims[:3]
        direction = "dgrad" if "dgrad" in kernel.lower() else "wgrad"
        stride, padding, dilation = (json.loads(concrete[at]) for at in (4, 5, 6))
    groups = x[1] // w[1]
    shapes = ";".join("x".join(map(str, one)) for one in (x, w, y, padding, stride, dilation))
    return f"conv;{direction};{shapes};{groups};{DTYPES[types[0]]};nhwc;{tail}"


def family_of(signature: str, kernel: str) -> str:
    kind = signature.split(";", 1)[0]
    if kind != "kernel":
        return kind
    for pattern, family in (
        ("unrolled_elementwise|WithCast|gpu_kernel_impl<", "element-wise, cast"),
        ("elementwise_kernel", "element-wise"),
        ("multi_tensor_apply", "optimizer, foreach"),
        ("SoftMax|softmax", "softmax"),
        ("layer_norm|GammaBeta|rms_norm", "layer norm"),
        ("batch_norm", "batch norm"),
        ("reduce_kernel", "reduction"),
        ("pool", "pooling"),
    ):
        if re.search(pattern, kernel):
            return family
    return "other"


def by_family(found: list[Work]) -> Iterator[tuple[str, list[Work]]]:
    groups: dict[str, list[Work]] = defaultdict(list)
    for one in found:
        groups[one.family].append(one)
    yield from sorted(groups.items(), key=lambda item: -sum(one.for_us for one in item[1]))
