"""Kernels that jobs of new kinds had and models were far from: thin batched products, scaling of pictures, and others.

    python thin_products_on_gpu.py OUT.jsonl SECONDS [FAMILY,...]     # needs the repository on PYTHONPATH

Families: products, shared, scaled, norms, channels, indexed, triangles, softmax. A line is [family, signature, launches,
sum, median] in microseconds; caches are read over between calls. `shared`: one operand of all products is the same
matrix (stride 0). `indexed`: gathers and scatters whose index is the same along the last dimension."""

import json
import os
import random
import sys
import time

import torch
from torch.nn import functional as F
from torch.profiler import ProfilerActivity, profile

DEV = "cuda"
DRAW = random.Random(11)
DTYPES = {"bf16": torch.bfloat16, "f16": torch.float16, "f32": torch.float32}
THIN = [1, 1, 2, 3, 4, 6, 8, 9, 12, 16]
DEEP = [16, 32, 48, 64, 64, 96, 128, 200, 256, 512]


def noise(*shape, dtype=torch.float32):
    return torch.randn(shape, device=DEV, dtype=dtype)


def product(dtype, batch, m, k, n, turned):
    a = noise(batch, k, m, dtype=dtype).transpose(1, 2) if turned[0] else noise(batch, m, k, dtype=dtype)
    b = noise(batch, n, k, dtype=dtype).transpose(1, 2) if turned[1] else noise(batch, k, n, dtype=dtype)
    return lambda: torch.bmm(a, b)


def products():
    while True:
        dtype = DTYPES[DRAW.choice(["bf16", "bf16", "f16", "f32"])]
        sizes = [DRAW.choice(THIN), DRAW.choice(DEEP), DRAW.choice(DEEP)]
        if DRAW.random() < 0.4:
            sizes[1] = DRAW.choice(THIN)
        DRAW.shuffle(sizes)
        batch = DRAW.choice([512, 4096, 16384, 49152, 51200])
        if batch * (sizes[0] * sizes[1] + sizes[1] * sizes[2] + sizes[0] * sizes[2]) < 400e6:
            yield product(dtype, batch, *sizes, (DRAW.random() < 0.5, DRAW.random() < 0.5))


def shared():
    while True:
        dtype = DTYPES[DRAW.choice(["bf16", "f16", "f32"])]
        batch, m, k, n = (
            DRAW.choice([8, 64, 197]),
            DRAW.choice([16, 32, 64, 200]),
            *DRAW.choices([256, 768, 1024, 2304], k=2),
        )
        x, w = noise(batch, m, k, dtype=dtype), noise(k, n, dtype=dtype)
        yield lambda x=x, w=w, batch=batch: torch.bmm(x, w.expand(batch, -1, -1))


def scaled():
    while True:
        mode = DRAW.choice(["bilinear", "bilinear", "bicubic", "nearest"])
        batch, channels, side = (
            DRAW.choice([1, 2, 8]),
            DRAW.choice([3, 64, 256, 768]),
            DRAW.choice([6, 14, 24, 48, 96, 192]),
        )
        to = DRAW.choice([6, 14, 32, 2 * side, 4 * side])
        dtype = DTYPES[DRAW.choice(["bf16", "f32"])]
        if batch * channels * max(side, to) ** 2 > 60e6:
            continue
        x = noise(batch, channels, side, side, dtype=dtype).requires_grad_()

        def call(x=x, to=to, mode=mode):
            y = F.interpolate(
                x, (to, to), mode=mode, **({} if mode == "nearest" else {"align_corners": DRAW.random() < 0.5})
            )
            torch.autograd.grad(y, x, torch.ones_like(y))

        yield call


def norms():
    while True:
        batch, channels, length = (
            DRAW.choice([16, 64, 256, 2688]),
            DRAW.choice([64, 128, 256, 512]),
            DRAW.choice([15, 31, 49, 63, 64, 100, 196, 200]),
        )
        if batch * channels * length > 60e6:
            continue
        norm = torch.nn.BatchNorm1d(channels).to(DEV)
        x = noise(batch, channels, length, dtype=DTYPES[DRAW.choice(["bf16", "f32", "f32"])]).requires_grad_()

        def call(x=x, norm=norm):
            with torch.autocast(DEV, torch.bfloat16, enabled=x.dtype is torch.bfloat16):
                y = norm(x)
            torch.autograd.grad(y, [x, *norm.parameters()], torch.ones_like(y))

        yield call


def channels():
    while True:
        few, many, side, of = (
            DRAW.choice([1, 1, 2, 3, 4]),
            DRAW.choice([3, 8, 16, 32, 64]),
            DRAW.choice([56, 112, 224, 384]),
            DRAW.choice([1, 1, 3]),
        )
        batch, last = DRAW.choice([2, 8, 16]), DRAW.random() < 0.5
        ins, outs = (few, many) if DRAW.random() < 0.4 else (many, few)
        kind = DRAW.choice(["bf16", "tf32"])
        if batch * (ins + outs) * side * side > 100e6:
            continue
        dtype = torch.bfloat16 if kind == "bf16" else torch.float32
        x, w = noise(batch, ins, side, side, dtype=dtype), noise(outs, ins, of, of, dtype=dtype)
        if last:
            x, w = x.to(memory_format=torch.channels_last), w.to(memory_format=torch.channels_last)
        x.requires_grad_(), w.requires_grad_()

        def call(x=x, w=w, of=of):
            y = F.conv2d(x, w, padding=of // 2)
            torch.autograd.grad(y, (x, w), torch.ones_like(y))

        yield call


def indexed():
    while True:
        batch, rows, width, chosen = (
            DRAW.choice([1, 8, 32, 192]),
            DRAW.choice([64, 256, 1024, 4096]),
            DRAW.choice([16, 48, 64, 256, 768]),
            DRAW.choice([64, 256, 1024]),
        )
        if batch * max(rows, chosen) * width > 60e6:
            continue
        x = noise(batch, rows, width, dtype=DTYPES[DRAW.choice(["f16", "f32"])])
        at = torch.randint(rows, (batch, chosen, 1), device=DEV).expand(-1, -1, width)
        y = noise(batch, chosen, width, dtype=x.dtype)
        what = DRAW.choice(["gather", "gather", "scatter", "scatter_add"])
        if what == "gather":
            yield lambda x=x, at=at: x.gather(1, at)
        else:
            yield lambda x=x, at=at, y=y, what=what: getattr(x, what)(1, at, y)


def triangles():
    while True:
        batch, n, columns = (
            DRAW.choice([1, 16, 128, 512, 1024]),
            DRAW.choice([16, 32, 64, 128, 256]),
            DRAW.choice([1, 16, 64, 128, 256]),
        )
        if batch * n * (n + columns) > 60e6:
            continue
        a = noise(batch, n, n).tril() + 4 * torch.eye(n, device=DEV)
        b = noise(batch, n, columns)
        yield lambda a=a, b=b: torch.linalg.solve_triangular(a, b, upper=False, unitriangular=DRAW.random() < 0.5)


def softmax():
    while True:
        rows, length = (
            DRAW.choice([1024, 8192, 98304]),
            DRAW.choice([65, 127, 129, 257, 500, 513, 1000, 1025, 2047, 2048, 2049, 4097]),
        )
        if rows * length > 250e6:
            continue
        x = noise(rows, length, dtype=DTYPES[DRAW.choice(["bf16", "f32"])]).requires_grad_()

        def call(x=x):
            y = x.softmax(-1)
            torch.autograd.grad(y, x, torch.ones_like(y))

        yield call


SHARES = {
    "products": 0.4,
    "shared": 0.07,
    "scaled": 0.1,
    "norms": 0.08,
    "channels": 0.12,
    "indexed": 0.1,
    "triangles": 0.06,
    "softmax": 0.07,
}


def measured(family, seconds, out):
    from profiles.timings import trace

    end, path = time.time() + seconds, f"/tmp/thin.{os.getpid()}.json"
    over = torch.empty(128 << 20, dtype=torch.uint8, device=DEV)
    calls = globals()[family]()
    torch.backends.cudnn.allow_tf32 = True
    while time.time() < end:
        some = [next(calls) for _ in range(6)]
        for call in some:
            call()
        torch.cuda.synchronize()
        with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA], record_shapes=True) as found:
            for call in some * 3:
                over.fill_(1)
                call()
            torch.cuda.synchronize()
        found.export_chrome_trace(path)
        with open(path) as file:
            events = json.load(file)["traceEvents"]
        rows = {}
        for one in trace.works(events):
            if "FillFunctor" not in one.signature and "[134217728]" not in one.signature:
                rows.setdefault(one.signature, []).append(one.for_us)
        for signature, us in rows.items():
            us.sort()
            line = [family, signature, len(us), round(sum(us), 2), round(us[len(us) // 2], 3)]
            out.write(json.dumps(line) + "\n")


if __name__ == "__main__":
    torch.manual_seed(0)
    with open(sys.argv[1], "w") as file:
        for family in sys.argv[3].split(",") if len(sys.argv) > 3 else SHARES:
            try:
                measured(family, float(sys.argv[2]) * SHARES[family], file)
            except (RuntimeError, StopIteration, KeyError) as error:
                print(family, "ended:", error, file=sys.stderr)
