"""Convolutions in groups, strided, with few channels; cudnn.benchmark's trials; recurrent networks; batch norms and pooling.

    python dense_on_gpu.py OUT.jsonl FAMILY SECONDS      # needs the repository and laboratory/programs on PYTHONPATH

Families: benchmark, groups, strided, recurrent, norms. Lines of convolutions are those of convolutions_on_gpu.py; `trials` has the blocks of the
first call with `benchmark`, and `trial_ms` its wall time; recurrent networks have `order`, the kernels of a pass one after the other; norms
those of conditions_on_gpu.py."""

import json
import random
import sys
import time

import torch
from torch.nn import functional as F
from torch.profiler import ProfilerActivity, profile

import convolutions_on_gpu as base
from convolutions_on_gpu import DEV, calls_of, fits, given, plain

OUT, FAMILY, SECONDS = sys.argv[1], sys.argv[2], float(sys.argv[3])
BEGAN = time.time()


def over():
    return time.time() - BEGAN > SECONDS


def grouped(draw):
    """Networks that people train: ResNeXt, RegNet, and around them."""
    c_of = (4, 4, 8, 8, 16, 24, 24, 32, 40, 48, 48, 56, 56, 64, 80, 96, 112, 112, 128, 168, 232, 264)
    of = draw.choice(c_of)
    groups = draw.choice(
        [
            g
            for g in (1, 2, 3, 4, 5, 6, 8, 9, 12, 14, 16, 18, 20, 21, 24, 28, 32, 36, 64)
            if 64 <= g * of <= 3024 and g > 1
        ]
        or [2]
    )
    side = draw.choice((7, 7, 14, 14, 14, 28, 28, 56, 56, 112))
    batch = draw.choice((8, 16, 32, 48, 64, 96, 128, 192, 256))
    stride = draw.choice((1, 1, 1, 2))
    kind, last = draw.choice(
        (("bf16", True), ("f16", True), ("f16", False), ("bf16", True), ("tf32", False), ("tf32", True), ("f16", False))
    )
    return {"of": "groups", "kind": kind, "last": last} | plain(
        batch, of * groups, side * stride, of * groups, 3, stride, groups=groups
    )


def regnets():
    """The stages of RegNet and ResNeXt at two batches, all kinds."""
    out = []
    for of, groups, side in (
        (56, 4, 56),
        (56, 8, 28),
        (56, 16, 14),
        (56, 36, 7),
        (48, 2, 56),
        (48, 4, 28),
        (48, 9, 14),
        (48, 21, 7),
        (24, 3, 56),
        (24, 5, 28),
        (24, 14, 14),
        (24, 37, 7),
        (16, 3, 56),
        (16, 7, 28),
        (16, 15, 14),
        (8, 6, 56),
        (8, 16, 28),
        (112, 2, 56),
        (112, 4, 28),
        (112, 10, 14),
        (112, 24, 7),
        (64, 5, 28),
        (64, 14, 14),
        (232, 3, 28),
        (232, 6, 14),
        (232, 14, 7),
        (4, 32, 56),
        (8, 32, 28),
        (16, 32, 14),
        (32, 32, 7),
        (8, 32, 56),
        (64, 32, 7),
    ):
        for stride in (1, 2):
            for batch in (32, 96, 128):
                for kind, last in (("bf16", True), ("f16", True), ("f16", False), ("tf32", False)):
                    if (kind, last) == ("f16", True) and batch != 128:
                        continue
                    out.append(
                        {"of": "regnet", "kind": kind, "last": last}
                        | plain(batch, of * groups, side * stride, of * groups, 3, stride, groups=groups)
                    )
    return out


def strided(draw):
    """4x4 and 3x3 filters with a stride, first layers, few channels; 7x7 over many; dilated; large images to three channels."""
    which = draw.choice(("tf32", "tf32", "first", "few", "kxk", "kxk", "one"))
    kind, last = draw.choice((("tf32", False), ("tf32", True), ("f16", True), ("bf16", True), ("f16", False)))
    batch = draw.choice((8, 16, 32, 64, 128, 256))
    wide = (32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024)
    if which == "tf32":
        side = draw.choice((4, 8, 8, 16, 16, 32, 32, 64, 128))
        return {"of": which, "kind": "tf32", "last": last} | plain(
            batch, draw.choice(wide), side, draw.choice(wide), draw.choice((3, 4, 4, 5)), draw.choice((1, 2, 2)), 1
        )
    if which == "first":
        taps, stride = draw.choice(((7, 2), (7, 2), (3, 2), (3, 1), (4, 4), (16, 16), (11, 4), (14, 14), (4, 2)))
        return {"of": which, "kind": kind, "last": last} | plain(
            batch,
            draw.choice((1, 3, 3, 3, 4)),
            draw.choice((64, 128, 192, 224, 224, 256, 320)),
            draw.choice((16, 24, 32, 64, 64, 96, 128)),
            taps,
            stride,
            0 if stride == taps else taps // 2,
        )
    if which == "few":
        return {"of": which, "kind": kind, "last": last} | plain(
            draw.choice((2, 4, 8, 16, 32, 64)),
            draw.choice((32, 64, 128, 256)),
            draw.choice((48, 64, 96, 128, 192, 256)),
            draw.choice((1, 2, 3, 3, 4, 21)),
            draw.choice((1, 3, 3, 5)),
        )
    if which == "one":
        side = draw.choice((7, 14, 28, 49, 56, 7, 14))
        return {"of": which, "kind": kind, "last": last} | plain(
            batch, draw.choice(wide), side, draw.choice(wide), 1, draw.choice((1, 1, 2))
        )
    return {"of": which, "kind": kind, "last": last} | plain(
        batch,
        draw.choice(wide),
        draw.choice((7, 14, 14, 16, 28, 32, 56, 64)),
        draw.choice(wide),
        draw.choice((3, 3, 3, 5, 7)),
        draw.choice((1, 1, 1, 2)),
        None,
        draw.choice((1, 1, 1, 2)),
    )


BENCHMARKS = [
    {"kind": kind, "last": last} | plain(batch, c, side, k, taps, stride, groups=groups)
    for batch, c, side, k, taps, stride, groups in (
        (64, 3, 224, 64, 7, 2, 1), (32, 64, 56, 64, 3, 1, 1), (64, 256, 28, 256, 3, 2, 1), (32, 256, 56, 64, 1, 1, 1), (16, 512, 14, 512, 3, 1, 1), (32, 128, 56, 128, 3, 2, 1),
        (32, 128, 28, 128, 3, 1, 32), (16, 96, 28, 96, 3, 1, 96), (48, 3, 224, 64, 3, 1, 1), (8, 64, 256, 32, 3, 1, 1), (32, 512, 28, 1024, 1, 2, 1),
    )
    for kind, last in (("f16", True), ("tf32", False), ("bf16", False), ("tf32", True))
]  # fmt: skip


def benchmark(file):
    torch.backends.cudnn.benchmark = True
    order = list(BENCHMARKS)
    random.Random(5).shuffle(order)
    for one in order:
        if over():
            return
        line = {"family": "benchmark"} | one
        x, w = (base.tensor(one[key], one["kind"], one["last"]) for key in ("x", "w"))
        base.precise(one["kind"])
        how = one["stride"], one["padding"], one["dilation"], False, (0, 0), one["groups"]
        forward = lambda: torch.ops.aten.convolution(x, w, None, *how)  # noqa: E731, B023
        back = lambda *mask: lambda: torch.ops.aten.convolution_backward(y, x, w, None, *how, mask)  # noqa: E731, B023
        for direction in ("fwd", "dgrad", "wgrad"):
            if direction == "dgrad":
                y = torch.randn_like(forward())
            call = {"fwd": forward, "dgrad": back(True, False, False), "wgrad": back(False, True, False)}[direction]
            torch.cuda.synchronize()
            with profile(activities=[ProfilerActivity.CUDA]) as p:
                torch.cuda.memory._record_memory_history(context=None)
                begin = time.perf_counter()
                out = call()
                torch.cuda.synchronize()
                ms = (time.perf_counter() - begin) * 1e3
                history = torch.cuda.memory._snapshot()["device_traces"][0]
                torch.cuda.memory._record_memory_history(enabled=None)
            events = sorted(
                (e.start_ns(), e.duration_ns(), e.name())
                for e in p.profiler.kineto_results.events()
                if e.device_type() == torch.autograd.DeviceType.CUDA
            )
            del out
            line[direction] = {
                "trial_ms": round(ms, 2),
                "trial_gpu_us": round(sum(e[1] for e in events) / 1e3, 1),
                "trial_kernels": len(events),
                "order": [[e[2][:60], round(e[1] / 1e3, 1)] for e in events][:200],
                "history": [
                    [e["action"], e["size"]]
                    for e in history
                    if e["action"] in ("alloc", "free_completed", "segment_free", "segment_alloc")
                ],
                "blocks": given(call),
            }
        file.write(json.dumps(line) + "\n")
        file.flush()
        torch.cuda.empty_cache()
    torch.backends.cudnn.benchmark = False


def convolutions(file, shapes, ahead=20_000):
    torch.backends.cudnn.benchmark = False
    at, size = 0, 32
    while not over():
        group = []
        while len(group) < size:
            one = next(shapes, None)
            if one is None:
                break
            if fits(one):
                group.append(one)
        if not group:
            return
        for line in base.measured(group, calls_of, 4, ahead, False):
            for direction in ("fwd", "dgrad", "wgrad"):
                for kernel in line.get(direction, {}).get("kernels", ()):
                    kernel[0] = kernel[0][:90]
            file.write(json.dumps({"family": "convolution"} | line) + "\n")
        file.flush()
        torch.cuda.empty_cache()
        at += len(group)
        if at // size % 8 == 0:
            print(f"{time.time() - BEGAN:.0f} s: {at} convolutions", flush=True)


def drawn(make, seed):
    draw, seen = random.Random(seed), set()
    while True:
        one = make(draw)
        if (key := json.dumps(one)) not in seen:
            seen.add(key)
            yield one


NETS = [
    {"mode": mode, "layers": layers, "hidden": hidden, "batch": batch, "steps": steps, "kind": kind, "both": both, "inputs": inputs, "dropout": 0.0, "first": False}
    for mode, layers, hidden, batch, steps, kind, both, inputs in (
        ("LSTM", 2, 1500, 20, 35, "tf32", False, 1500), ("LSTM", 2, 1500, 20, 35, "f32", False, 1500), ("LSTM", 2, 1500, 20, 35, "f16", False, 1500), ("LSTM", 1, 1500, 20, 35, "tf32", False, 1500),
        ("LSTM", 2, 1024, 64, 50, "tf32", False, 1024), ("LSTM", 2, 1024, 64, 50, "bf16", False, 1024), ("LSTM", 1, 512, 128, 40, "tf32", False, 512), ("LSTM", 1, 2048, 32, 30, "tf32", False, 1024),
        ("LSTM", 3, 640, 32, 60, "tf32", True, 640), ("LSTM", 2, 650, 20, 35, "tf32", False, 650), ("LSTM", 2, 1000, 40, 35, "tf32", False, 1000), ("LSTM", 2, 512, 64, 100, "f16", True, 512),
        ("LSTM", 4, 768, 16, 50, "bf16", False, 768), ("GRU", 2, 1024, 64, 50, "tf32", False, 1024), ("GRU", 3, 800, 32, 60, "tf32", True, 800), ("GRU", 2, 1500, 20, 35, "tf32", False, 1500),
        ("GRU", 2, 768, 96, 60, "f16", False, 768), ("GRU", 1, 2048, 32, 30, "bf16", False, 1024), ("RNN", 2, 1024, 64, 50, "tf32", False, 1024), ("LSTM", 2, 256, 256, 50, "tf32", False, 256),
        ("LSTM", 1, 1150, 40, 70, "tf32", False, 400), ("LSTM", 2, 1280, 48, 40, "bf16", False, 640), ("LSTM", 2, 2048, 16, 20, "f16", False, 2048), ("GRU", 4, 640, 80, 60, "tf32", False, 640),
    )
]  # fmt: skip


def recurrent(file):
    for one in NETS:
        if over():
            return
        line = {"family": "recurrent"} | one
        calls, keep = base.recurrent_calls(one)
        for direction, (call, first) in calls.items():
            call()
            line[direction] = {"blocks": given(call)}
            with profile(activities=[ProfilerActivity.CUDA]) as p:
                for _ in range(3):
                    base.run_marked(call, first, 20_000_000)
            events = [
                (e.name(), e.start_ns(), e.duration_ns())
                for e in p.profiler.kineto_results.events()
                if e.device_type() == torch.autograd.DeviceType.CUDA
            ]
            found = base.between(events)
            line[direction] |= base.told(found)
            last = sorted(found[-1], key=lambda e: e[1])
            begin, names = last[0][1], {}
            line[direction]["order"] = [
                [names.setdefault(n[:110], len(names)), round((b - begin) / 1e3, 1), round(ns / 1e3, 1)]
                for n, b, ns in last
            ]
            line[direction]["names"] = list(names)
        file.write(json.dumps(line) + "\n")
        file.flush()
        del calls, keep, call, first
        torch.cuda.empty_cache()


def norm(shape, kind, last):
    def make():
        x = base.tensor(shape, kind, last).requires_grad_()
        c = shape[1]
        w, b = torch.ones(c, device=DEV, requires_grad=True), torch.zeros(c, device=DEV, requires_grad=True)
        mean, var = torch.zeros(c, device=DEV), torch.ones(c, device=DEV)
        g = base.tensor(shape, kind, last)

        def call():
            y = F.batch_norm(x, mean, var, w, b, True)
            torch.autograd.grad(y, (x, w, b), g)

        return call, x.detach()

    return make


def pool(shape, kind, last, taps, stride, padding, average):
    def make():
        x = base.tensor(shape, kind, last).requires_grad_()
        apply = (
            (lambda: F.avg_pool2d(x, taps, stride, padding))
            if average
            else (lambda: F.max_pool2d(x, taps, stride, padding))
        )
        g = torch.randn_like(apply())
        return (lambda: torch.autograd.grad(apply(), x, g)), x.detach()

    return make


def norms(file):
    import conditions_on_gpu as conditions

    conditions.CONDITIONS = ("cold", "written", "hot")
    draw, cases = random.Random(11), []
    for _ in range(260):
        c = draw.choice(
            (
                16,
                24,
                32,
                48,
                64,
                64,
                96,
                112,
                128,
                168,
                192,
                224,
                256,
                256,
                320,
                448,
                512,
                512,
                672,
                896,
                1024,
                1024,
                2016,
                2048,
            )
        )
        side = draw.choice((7, 14, 14, 28, 28, 56, 56, 112, 112))
        batch = draw.choice((8, 16, 32, 64, 96, 96, 128, 128, 192))
        kind, last = draw.choice(
            (
                ("bf16", True),
                ("bf16", True),
                ("bf16", True),
                ("f16", True),
                ("f16", True),
                ("f16", True),
                ("f32", True),
                ("f16", False),
                ("f32", False),
                ("bf16", False),
            )
        )
        if batch * c * side * side * 4 < 1.7e9:
            cases.append(("batch norm", f"{batch} {c} {side} {kind} {last}", norm((batch, c, side, side), kind, last)))
    for _ in range(40):
        c, side, batch = (
            draw.choice((32, 64, 64, 128, 192, 256)),
            draw.choice((28, 56, 112, 112)),
            draw.choice((16, 32, 64, 96, 128)),
        )
        kind, last = draw.choice((("bf16", True), ("f16", True), ("f32", True), ("f16", False), ("f32", False)))
        how = draw.choice(((3, 2, 1, False), (3, 2, 1, False), (2, 2, 0, False), (2, 2, 0, True), (3, 1, 1, False)))
        if batch * c * side * side * 4 < 1.7e9:
            cases.append(
                ("pooling", f"{batch} {c} {side} {kind} {last} {how}", pool((batch, c, side, side), kind, last, *how))
            )
    draw.shuffle(cases)
    around = conditions.Surroundings()
    for number, (family, name, make) in enumerate(cases):
        if over():
            print("norms stopped at", number, flush=True)
            return
        for line in conditions.measured(family, name, make, around):
            file.write(json.dumps(line) + "\n")
        file.flush()
        if number % 20 == 0:
            torch.cuda.empty_cache()


def main():
    base.BIG = torch.ones(80 << 20, device=DEV)
    with open(OUT, "a") as file:
        about = {
            "gpu": torch.cuda.get_device_name(0),
            "torch": torch.__version__,
            "cudnn": torch.backends.cudnn.version(),
        }
        file.write(json.dumps(about | {"date": time.strftime("%Y-%m-%d")}) + "\n")
        if FAMILY == "groups":
            stages = [one for one in regnets() if fits(one)]
            random.Random(2).shuffle(stages)
            several = drawn(grouped, 3)
            convolutions(file, (one for pair in zip(stages, several) for one in pair), 2_500_000)
        elif FAMILY == "strided":
            convolutions(file, drawn(strided, 4))
        else:
            {"benchmark": benchmark, "recurrent": recurrent, "norms": norms}[FAMILY](file)
    print(f"{FAMILY}: {time.time() - BEGAN:.0f} s", flush=True)


main()
