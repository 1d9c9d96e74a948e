"""Kernels of one GPU that were known to be priced wrong, measured as `conditions_on_gpu.py` measures: PyTorch's batch
norm and depthwise convolutions, products of 8 bits scaled by row, grouped products, long sums of f32, rows that are
added to equal places.

    python sized_on_gpu.py OUT.jsonl [--for SECONDS] [FAMILY ...]    # needs the repository on PYTHONPATH

A line of a product also has the kernels that ran (`kernels`: name, launches a call, median us)."""

import json
import random
import sys

import torch
from torch.nn import functional as F

import causes_on_gpu
import conditions_on_gpu as base

base.FAMILIES.clear()
base.CALLS = 3
base.CONDITIONS = ("written", "hot")
base.measured = causes_on_gpu.measured
DEV, TYPES, case, tensor = base.DEV, base.TYPES, base.case, base.tensor
ops = torch.ops.aten
draw = random.Random(11)


# ---- batch norm of PyTorch ----
def batch_norm(shape, kind, last):
    def make():
        x = tensor(*shape, kind=kind)
        if last:
            x = x.contiguous(memory_format=torch.channels_last)
        w, b = (torch.ones(shape[1], device=DEV, requires_grad=True) for _ in range(2))
        mean, var = torch.zeros(shape[1], device=DEV), torch.ones(shape[1], device=DEV)
        gradient = torch.randn_like(x)
        x.requires_grad_()

        def call():
            with torch.backends.cudnn.flags(enabled=False):
                torch.autograd.grad(F.batch_norm(x, mean, var, w, b, training=True), (x, w, b), gradient)

        return call, x.detach()

    return make


SIDES = [(7, 7), (8, 8), (14, 14), (16, 16), (20, 20), (28, 28), (32, 32), (56, 56), (64, 64), (112, 112), (4, 4), (12, 40), (1, 1000), (8, 28, 28), (16, 56, 56), (4, 14, 14), (1, 1), (10, 10), (96, 96)]  # fmt: skip
norms = set()
while len(norms) < 150:
    images, channels, sides = draw.choice((1, 2, 4, 8, 16, 32, 48, 64, 128, 256)), draw.choice((16, 24, 32, 48, 64, 96, 128, 192, 256, 320, 512, 768, 1024, 2048)), draw.choice(SIDES)  # fmt: skip
    pixels = images * torch.Size(sides).numel()
    if 200_000 < pixels * channels < 120_000_000 and pixels > 8:
        norms.add((images, channels, *sides))
for number, shape in enumerate(sorted(norms, key=lambda one: hash(one) % 1009)):
    kind = ("bf16", "bf16", "f16", "f32")[number % 4]
    case("batch norm", f"{shape} {kind}", batch_norm(shape, kind, False))
    if number % 4 == 1 and len(shape) == 4:
        case("batch norm", f"{shape} {kind} last", batch_norm(shape, kind, True))


# ---- depthwise convolutions of PyTorch ----
def depthwise(images, channels, sides, taps, stride, dilation, kind):
    def make():
        x, w = tensor(images, channels, *sides, kind=kind), tensor(channels, 1, *taps, kind=kind)
        padding = [(dilation * (one - 1)) // 2 for one in taps]
        steps = [stride] * len(taps)
        if len(taps) == 2 and taps[0] == 1:
            steps[0] = 1
        apart = [dilation if one > 1 else 1 for one in taps]
        w.requires_grad_(), x.requires_grad_()

        def forward():
            with torch.backends.cudnn.flags(enabled=False):
                return F.conv2d(x, w, None, steps, padding, apart, channels)

        gradient = torch.randn_like(forward())

        def call():
            with torch.backends.cudnn.flags(enabled=False):
                torch.autograd.grad(forward(), (x, w), gradient)

        return call, x.detach()

    return make


DEPTHWISE = set()
while len(DEPTHWISE) < 130:
    high = draw.choice((3, 5, 7, 7, 7, 9, 11, 13, 31))
    flat = draw.random() < 0.25
    taps = (1, draw.choice((3, 5, 7, 9, 15, 31))) if flat else (high, high)
    side = draw.choice((512, 1024, 4096)) if flat else draw.choice((7, 12, 14, 20, 28, 32, 48, 56, 64, 112))
    sides = (1, side) if flat else (side, side)
    images, channels = draw.choice((4, 8, 16, 32, 64, 128)), draw.choice((32, 64, 96, 128, 192, 256, 384, 512, 768, 1024))  # fmt: skip
    count, filters = images * channels * sides[0] * sides[1], taps[0] * taps[1]
    if 500_000 < count < 100_000_000 and 5e6 < count * filters < 1.2e9:
        DEPTHWISE.add((images, channels, sides, taps, draw.choice((1, 1, 1, 2)), draw.choice((1, 1, 1, 2)), draw.choice(("bf16", "bf16", "f32", "f16"))))  # fmt: skip
for one in sorted(DEPTHWISE, key=lambda one: hash(one[:2] + one[3]) % 1009):
    case("depthwise", " ".join(map(str, one)), depthwise(*one))


# ---- products of 8 bits: one scale, or scales by row ----
def eight(m, n, k, rows, fast, out):
    def make():
        a, b = tensor(m, k).to(torch.float8_e4m3fn), tensor(n, k).to(torch.float8_e4m3fn).t()
        scales = [torch.ones(s, device=DEV) for s in (((m, 1), (1, n)) if rows else ((), ()))]
        return (lambda: torch._scaled_mm(a, b, *scales, out_dtype=TYPES[out], use_fast_accum=fast)), None

    return make


EIGHT = (
    (8192, 2048, 2048), (8192, 8192, 2048), (8192, 2048, 8192), (8192, 512, 2048), (2048, 8192, 8192), (512, 2048, 8192), (4096, 4096, 4096), (8192, 4096, 4096), (8192, 1024, 4096), (8192, 14336, 4096), (8192, 4096, 14336), (14336, 4096, 8192), (4096, 14336, 8192), (16384, 4096, 4096),
    (2048, 4096, 4096), (1024, 1024, 1024), (2048, 2048, 2048), (1024, 4096, 1024), (4096, 1024, 4096), (512, 512, 4096), (16384, 1024, 1024), (16384, 5120, 5120), (4096, 13824, 5120), (8192, 8192, 8192), (128, 4096, 4096), (256, 14336, 4096), (64, 4096, 14336), (16, 4096, 4096), (768, 3072, 8192),
    (8192, 768, 3072), (4096, 3072, 768), (3072, 1024, 32768), (1024, 1024, 65536), (256, 256, 65536), (4096, 1536, 6144), (6144, 1536, 4096), (8192, 28672, 8192), (2048, 7168, 4096), (4096, 7168, 2048), (1536, 8960, 16384), (12288, 1536, 8960),
)  # fmt: skip
for number, (m, n, k) in enumerate(EIGHT):
    for fast in (False, True):
        case("product f8 rows", f"{m} {n} {k} rows {fast}", eight(m, n, k, True, fast, "bf16"))
        if (number + fast) % 2 == 0:
            case("product f8", f"{m} {n} {k} {fast}", eight(m, n, k, False, fast, "bf16" if number % 4 else "f32"))


# ---- grouped products ----
def grouped(groups, rows, n, k, what, uneven):
    def make():
        shares = torch.rand(groups) ** 2 + 0.02 if uneven else torch.ones(groups)
        ends = (shares.cumsum(0) / shares.sum() * rows / 16).round().int() * 16
        ends[-1] = rows
        ends = ends.to(DEV)
        x, w, y = tensor(rows, k, kind="bf16"), tensor(groups, k, n, kind="bf16"), tensor(rows, n, kind="bf16")
        calls = {
            "forward": lambda: torch._grouped_mm(x, w, ends),
            "turned": lambda: torch._grouped_mm(y, w.transpose(-1, -2), ends),
            "weights": lambda: torch._grouped_mm(x.t(), y, ends),
        }
        return calls[what], x

    return make


for number, (groups, rows, n, k) in enumerate((
    (8, 8192, 3584, 1024), (8, 8192, 1024, 3584), (8, 4096, 14336, 4096), (8, 16384, 14336, 4096), (64, 8192, 1408, 2048), (64, 32768, 1408, 2048), (64, 49152, 2048, 1408), (128, 16384, 768, 2048), (128, 65536, 768, 2048), (16, 8192, 2048, 1024), (32, 2048, 1024, 1024), (8, 1024, 512, 512), (16, 32768, 5120, 1536), (16, 16384, 8192, 5120),
    (4, 8192, 4096, 1024), (4, 32768, 1024, 1024), (32, 65536, 512, 2048), (60, 16384, 1408, 2048), (8, 512, 14336, 4096), (64, 1024, 1408, 2048), (128, 4096, 768, 2048), (256, 32768, 512, 1024), (2, 8192, 8192, 2048),
)):  # fmt: skip
    for at, what in enumerate(("forward", "turned", "weights")):
        case("grouped", f"{groups} {rows} {n} {k} {what}", grouped(groups, rows, n, k, what, False))
        if (number + at) % 3 == 0:
            case("grouped uneven", f"{groups} {rows} {n} {k} {what}", grouped(groups, rows, n, k, what, True))


# ---- long sums of f32, and what surrounds them ----
for m, n, k in (
    (319, 256, 393216), (256, 319, 393216), (320, 256, 393216), (256, 320, 131072), (319, 256, 65536), (283, 128, 262144), (128, 283, 65536), (100, 192, 200000), (192, 100, 50000), (128, 3, 393216), (3, 128, 65536), (4, 256, 131072), (64, 64, 262144), (384, 256, 131072), (300, 300, 65536), (512, 300, 32768), (400, 300, 16384), (300, 400, 16384), (300, 17, 16384),
    (1024, 256, 32768), (256, 1024, 32768), (512, 512, 8192), (784, 1024, 2048), (1024, 784, 1024), (1024, 10, 2048), (128, 128, 4096), (256, 256, 4096), (64, 256, 8192), (500, 700, 20000), (200, 48, 100000), (768, 768, 8192), (768, 3072, 8192), (7168, 1024, 804), (1024, 7168, 804), (7168, 1024, 2034), (602, 256, 232965), (47, 256, 169343), (256, 40, 169343), (1433, 16, 2708), (2000, 1500, 3000), (160, 640, 25000), (1, 256, 131072), (16, 64, 1000000), (448, 448, 50000),
):  # fmt: skip
    case("product f32", f"{m} {n} {k} TN f32", base.product(m, n, k, "TN", "f32"))
    if min(m, n) > 16:
        case("product f32", f"{k // 8} {n} {m} NT f32", base.product(k // 8, n, m, "NT", "f32"))


# ---- rows that are added to equal places ----
def added(rows, count, width, how, what, kind):
    def make():
        if how == "zipf":  # as words in a text
            weights = 1.0 / torch.arange(1, rows + 1, device=DEV, dtype=torch.float64)
            at = torch.searchsorted((weights.cumsum(0) / weights.sum()).float(), torch.rand(count, device=DEV))
            at = torch.randperm(rows, device=DEV)[at.clamp_(0, rows - 1)]
        else:
            at = base.places(rows, count, how)
        values, table = tensor(count, width, kind=kind), torch.zeros(rows, width, device=DEV, dtype=TYPES[kind])
        calls = {
            "put": lambda: ops.index_put_(table, [at], values, True),
            "embedding": lambda: ops.embedding_dense_backward(values, at, rows, -1, False),
        }
        return calls[what], values

    return make


for rows, count, width in ((50257, 8192, 768), (50257, 32768, 1024), (128256, 8192, 2048), (128256, 16384, 4096), (30522, 16384, 768), (32000, 65536, 512), (1024, 65536, 64), (512, 16384, 256), (16384, 327680, 64), (16384, 327680, 128), (512, 8192, 768), (2, 16384, 768), (100, 4096, 128)):  # fmt: skip
    for what in ("put", "embedding"):
        for how in ("random", "zipf"):
            case("added", f"{what} {rows} {count} {width} {how}", added(rows, count, width, how, what, "bf16" if width > 512 else "f32"))  # fmt: skip


if __name__ == "__main__":
    print(json.dumps({family: len(cases) for family, cases in base.FAMILIES.items()}), flush=True)
    sys.exit(base.main())
