"""Convolutions of networks that people train and around them, batch norms, recurrent networks, and the host's time of calls.

    python more_convolutions_on_gpu.py CASES.json.gz OUT.jsonl.gz SECONDS

CASES: what more_convolution_shapes.py wrote. Lines are those of convolutions_on_gpu.py, kernels with their grid; `covered` is the time in
which any kernel ran; `host` has the microseconds of ten calls by the host, the GPU being busy: least and median."""

import gzip
import json
import os
import random
import sys
import time
from collections import defaultdict
from statistics import median
import torch
from torch import nn
from torch.profiler import ProfilerActivity, profile

from small_convolutions_on_gpu import TYPES, blocks as given

CASES, OUT, SECONDS = sys.argv[1], sys.argv[2], float(sys.argv[3])
BEGAN = time.time()
DEV = "cuda"
REPS = 3
BIG = torch.ones(80 << 20, device=DEV)


def precise(kind):
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = kind == "tf32"


def tensor(shape, kind, last):
    x = torch.randn(shape, device=DEV, dtype=TYPES[kind])
    formats = {4: torch.channels_last, 5: torch.channels_last_3d}
    return x.to(memory_format=formats[x.dim()]) if last and x.dim() in formats else x


def conv_calls(one):
    precise(one["kind"])
    x, w = (tensor(one[key], one["kind"], one["last"]) for key in ("x", "w"))
    transposed, more = one.get("transposed", False), one.get("more", (0,) * (len(one["x"]) - 2))
    how = one["stride"], one["padding"], one["dilation"], transposed, more, one["groups"]
    y = torch.randn_like(torch.ops.aten.convolution(x, w, None, *how))

    def back(*mask):
        return lambda: torch.ops.aten.convolution_backward(y, x, w, None, *how, mask)

    return {
        "fwd": (lambda: torch.ops.aten.convolution(x, w, None, *how), x),
        "dgrad": (back(True, False, False), y),
        "wgrad": (back(False, True, False), y),
    }


def norm_calls(one):
    n = len(one["x"]) - 2
    x = tensor(one["x"], one["kind"], one["last"]).requires_grad_()
    net = {2: nn.BatchNorm2d, 3: nn.BatchNorm3d}[n](one["x"][1]).to(DEV)
    y = net(x)
    g = torch.randn_like(y)
    return {
        "fwd": (lambda: net(x), g),
        "bwd": (lambda: torch.autograd.grad(y, (x, *net.parameters()), g, retain_graph=True), g),
    }


def rnn_calls(one):
    precise(one["kind"])
    net = (
        getattr(nn, one["mode"])(one["inputs"], one["hidden"], one["layers"], bidirectional=one["both"])
        .to(DEV, TYPES[one["kind"]])
        .train()
    )
    net.flatten_parameters()
    x = tensor((one["steps"], one["batch"], one["inputs"]), one["kind"], False).requires_grad_()
    y = net(x)[0]
    g = torch.randn_like(y)
    return {
        "fwd": (lambda: net(x)[0], g),
        "bwd": (lambda: torch.autograd.grad(y, (x, *net.parameters()), g, retain_graph=True), g),
    }


def run_marked(call, first, ahead):
    BIG.sum()
    first.detach().mul_(1.0)
    torch.cuda._sleep(ahead)
    call()
    torch.cuda._sleep(100)
    torch.cuda.synchronize()


def events_of(p):
    path = f"/tmp/convs-{os.getpid()}.json"
    p.export_chrome_trace(path)
    with open(path) as file:
        text = file.read()
    os.unlink(path)
    found = []
    for e in json.loads(text)["traceEvents"]:
        if e.get("cat") in ("kernel", "gpu_memset", "gpu_memcpy"):
            a = e["args"]
            found.append((e["ts"], e["dur"], e["name"], (tuple(a.get("grid", ())), tuple(a.get("block", ())))))
    found.sort()
    return found


def between(events):
    found, inside = [], None
    for event in events:
        if "spin_kernel" in event[2]:
            if inside is None:
                inside = []
            else:
                found.append(inside)
                inside = None
        elif inside is not None:
            inside.append(event)
    return found


def told(calls):
    sums = [sum(e[1] for e in one) for one in calls]
    spans = [max(e[0] + e[1] for e in one) - min(e[0] for e in one) if one else 0.0 for one in calls]
    covered = []
    for one in calls:
        end, total = 0.0, 0.0
        for b, d, *_ in one:
            total += max(0.0, b + d - max(b, end))
            end = max(end, b + d)
        covered.append(total)
    kernels = defaultdict(list)
    for one in calls:
        for _, dur, name, shape in one:
            kernels[name[:140], shape].append(dur)
    listed = [
        [name, round(len(us) / len(calls), 2), round(sum(us) / len(us), 3), *shape]
        for (name, shape), us in kernels.items()
    ][:40]
    return {
        "us": round(median(sums), 3),
        "span": round(median(spans), 3),
        "covered": round(median(covered), 3),
        "kernels": listed,
    }


def measured(group, make, ahead, blocks):
    lines, order = [], []
    with profile(activities=[ProfilerActivity.CUDA]) as p:
        for one in group:
            line = dict(one)
            mine = []
            try:
                calls = make(one)
                for direction, (call, first) in calls.items():
                    line[direction] = {"blocks": given(call) if blocks else []}
                    for _ in range(REPS):
                        run_marked(call, first, ahead)
                        mine.append((line, direction))
            except Exception as error:
                line["error"] = repr(error)[:200]
                torch.cuda.synchronize()
            order += mine
            calls = call = first = None
            lines.append(line)
    found = between(events_of(p))
    if len(found) != len(order):
        print("calls", len(order), "found", len(found), flush=True)
        if len(group) > 1 and found:
            return [line for one in group for line in measured([one], make, ahead, blocks)]
        return lines
    calls = defaultdict(list)
    for (line, direction), kernels in zip(order, found, strict=True):
        calls[id(line), direction].append(kernels)
    for line in lines:
        for direction in ("fwd", "dgrad", "wgrad", "bwd"):
            if (id(line), direction) in calls:
                line[direction] |= told(calls[id(line), direction])
    return lines


def family(file, name, cases, make, ahead, until, size, blocks=False):
    at = 0
    while at < len(cases) and time.time() - BEGAN < until:
        for line in measured(cases[at : at + size], make, ahead, blocks):
            file.write(json.dumps({"family": name} | line) + "\n")
        torch.cuda.empty_cache()
        at += size
    file.flush()
    print(f"{time.time() - BEGAN:.0f} s: {name}: {min(at, len(cases))} of {len(cases)}", flush=True)


draw = random.Random(5)
NORMS = [
    {"kind": kind, "last": last, "x": (b, ch, *((d,) if d else ()), s, s)}
    for kind, last in (("f16", True), ("f16", False), ("bf16", True), ("bf16", False), ("f32", True), ("f32", False))
    for b, ch, s, d in ((96, 64, 112, 0), (64, 64, 56, 0), (128, 256, 56, 0), (32, 128, 28, 0), (96, 512, 28, 0), (96, 256, 14, 0), (64, 1024, 14, 0), (96, 512, 7, 0), (64, 2048, 7, 0), (128, 72, 56, 0), (192, 216, 28, 0), (48, 24, 100, 0),
      (16, 128, 8, 0), (16, 64, 56, 16), (16, 256, 14, 4), (4, 32, 64, 64), (8, 64, 128, 0), (256, 32, 32, 0), (200, 160, 16, 0), (12, 336, 40, 0))
]  # fmt: skip
draw.shuffle(NORMS)
RNNS = [
    dict(mode=m, layers=l, hidden=h, batch=b, steps=t, kind=k, both=both, inputs=i)
    for m, l, h, b, t, k, both, i in (
        ("LSTM", 2, 1500, 20, 35, "tf32", False, 1500), ("LSTM", 1, 1500, 20, 35, "tf32", False, 1500), ("LSTM", 1, 1024, 64, 50, "tf32", False, 1024), ("LSTM", 1, 512, 128, 40, "tf32", False, 512), ("LSTM", 1, 1024, 32, 60, "bf16", False, 512),
        ("LSTM", 1, 2048, 16, 20, "tf32", False, 1024), ("LSTM", 2, 650, 20, 35, "tf32", False, 650), ("LSTM", 2, 650, 20, 35, "f32", False, 650), ("LSTM", 1, 1000, 40, 35, "f32", False, 1000), ("LSTM", 2, 512, 32, 60, "f16", True, 512),
        ("LSTM", 1, 256, 64, 100, "f32", False, 128), ("LSTM", 2, 256, 256, 40, "tf32", False, 256), ("LSTM", 1, 384, 96, 64, "f16", False, 384), ("GRU", 1, 1024, 64, 50, "tf32", False, 1024), ("GRU", 2, 768, 96, 40, "f32", False, 768),
        ("GRU", 1, 1500, 20, 35, "tf32", False, 1500), ("GRU", 1, 512, 32, 60, "bf16", False, 512), ("GRU", 1, 256, 128, 40, "f32", False, 256), ("GRU", 1, 512, 16, 64, "f16", False, 512), ("RNN", 1, 512, 64, 50, "tf32", False, 512),
        ("LSTM", 1, 128, 64, 100, "tf32", False, 64), ("LSTM", 1, 768, 48, 60, "tf32", False, 768), ("LSTM", 1, 1280, 24, 40, "f32", False, 640), ("GRU", 1, 640, 80, 60, "tf32", False, 640))
]  # fmt: skip


def host(file, cases, until):
    """Microseconds of the host's call, the GPU being busy with a spin: least and median of ten."""
    lines = 0
    for one in cases:
        if time.time() - BEGAN > until:
            break
        line = {"family": "host"} | one
        try:
            for direction, (call, _) in conv_calls(one).items():
                call(), call()
                torch.cuda.synchronize()
                us = []
                for _ in range(2):
                    torch.cuda._sleep(6_000_000)
                    for _ in range(5):
                        begin = time.perf_counter()
                        out = call()
                        us.append((time.perf_counter() - begin) * 1e6)
                    torch.cuda.synchronize()
                    del out
                line[direction] = {"least": round(min(us), 1), "median": round(median(us), 1)}
        except Exception as error:
            line["error"] = repr(error)[:200]
        file.write(json.dumps(line) + "\n")
        lines += 1
    print(f"{time.time() - BEGAN:.0f} s: host {lines}", flush=True)


def main():
    cases = json.load(gzip.open(CASES))
    few = [one for one in cases if one["groups"] == 1][-60:] + [
        one for one in cases if one["groups"] > 1 and one["w"][1] > 1
    ][-70:]
    few = [one | {"x": [min(one["x"][0], 16), *one["x"][1:]]} for one in few]
    random.Random(3).shuffle(few)
    with gzip.open(OUT, "at", compresslevel=3) as file:
        file.write(
            json.dumps(
                {
                    "gpu": torch.cuda.get_device_name(0),
                    "torch": torch.__version__,
                    "cudnn": torch.backends.cudnn.version(),
                    "date": time.strftime("%Y-%m-%d"),
                }
            )
            + "\n"
        )
        first = 0.70 * SECONDS
        family(file, "convolution", cases, conv_calls, 200_000, first, 48, True)
        family(file, "norm", NORMS, norm_calls, 200_000, 0.75 * SECONDS, 12)
        family(file, "recurrent", RNNS, rnn_calls, 30_000_000, 0.85 * SECONDS, 2)
        host(file, few, 0.95 * SECONDS)
        print(f"{time.time() - BEGAN:.0f} s: all", flush=True)


main()
