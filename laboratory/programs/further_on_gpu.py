"""Further kernels of one GPU, measured as `conditions_on_gpu.py` measures: products whose rows are not aligned, losses of
pictures and what else is done to them, reductions of tensors of several dimensions, gradients of small embeddings, concatenations, block masks.

    python further_on_gpu.py OUT.jsonl [--for SECONDS] [FAMILY ...]    # needs the repository on PYTHONPATH

A line of a product also has the kernels that cuBLAS took (`kernels`: name, launches a call, median us). `flex`, which compiles,
only if it is named."""

import json
import sys
from collections import defaultdict
from statistics import median

import torch
from torch.nn import functional as F

import conditions_on_gpu as base

base.FAMILIES.clear()
DEV, case, tensor = base.DEV, base.case, base.tensor


# ---- products whose rows are not aligned ----
SIZES = (
    (8192, 50257, 768), (8192, 768, 50257), (50257, 768, 8192), (1024, 50257, 1280), (16384, 30522, 768), (16384, 768, 30522), (30522, 768, 16384),
    (2048, 32001, 4096), (4096, 4097, 1024), (4096, 4098, 1024), (4096, 4100, 1024), (4096, 4104, 1024), (4097, 4096, 1024), (4098, 4096, 1024), (4096, 4096, 1023), (4096, 4096, 1022), (4096, 4096, 1020),
    (2046, 2050, 4098), (4100, 2052, 1028), (4104, 2056, 1032), (777, 777, 777), (333, 999, 111), (10001, 10001, 501), (5001, 300, 5001), (1537, 1537, 1537), (12608, 768, 197), (3001, 1500, 4097), (300, 70001, 513),
    (8192, 3, 512), (8192, 1, 511), (65536, 7, 64), (32768, 17, 256), (262144, 3, 128), (65536, 128, 3), (65536, 256, 39), (1048576, 64, 27), (16384, 512, 13), (3, 512, 8192), (39, 256, 65536), (27, 64, 262144), (128, 10, 1025), (512, 1000, 2047),
)  # fmt: skip
for number, (m, n, k) in enumerate(SIZES):
    for at, turn in enumerate(("NT", "NN", "TN")):
        kinds = ["bf16"] + ([("tf32", "f16", "f32", "tf32")[(number + at) % 4]] if (number + at) % 2 else [])
        for kind in kinds:
            if m * n * k < 2e12 / (6 if kind == "f32" else 1):
                case("unaligned", f"{m} {n} {k} {turn} {kind}", base.product(m, n, k, turn, kind))
for number, (batch, m, n, k) in enumerate((
    (192, 197, 197, 64), (192, 197, 64, 197), (96, 577, 577, 64), (96, 577, 64, 577), (48, 1025, 1025, 64), (1024, 50, 50, 32), (1024, 50, 32, 50), (256, 77, 77, 64), (256, 77, 64, 77),
    (64, 333, 333, 80), (2048, 9, 9, 16), (4096, 49, 49, 32), (4096, 49, 32, 49), (16, 1001, 1001, 1001), (8, 2047, 2050, 129), (512, 63, 63, 64),
)):  # fmt: skip
    for at, turn in enumerate(("NT", "NN", "TN")):
        for kind in ["bf16"] + ([("tf32", "f16")[number % 2]] if (number + at) % 3 == 0 else []):
            case("unaligned", f"{batch} of {m} {n} {k} {turn} {kind}", base.product(m, n, k, turn, kind, batch))


# ---- losses of pictures, softmax over channels, rows of thousands ----
def picture_loss(shape, kind, last):
    def make():
        x = tensor(*shape, kind=kind)
        x = (x.contiguous(memory_format=torch.channels_last) if last else x).requires_grad_()
        y = torch.randint(shape[1], (shape[0], *shape[2:]), device=DEV)
        return (lambda: torch.autograd.grad(F.cross_entropy(x, y), x)), x.detach()

    return make


def softmax(shape, kind, dim, logarithm=False):
    def make():
        x, g = tensor(*shape, kind=kind).requires_grad_(), tensor(*shape, kind=kind)
        call = F.log_softmax if logarithm else F.softmax
        return (lambda: torch.autograd.grad(call(x, dim), x, g)), x.detach()

    return make


for number, shape in enumerate((
    (8, 21, 385, 385), (4, 19, 512, 1024), (16, 150, 128, 128), (2, 3, 256, 256), (32, 2, 96, 96), (1, 1000, 64, 64), (64, 10, 32, 32), (16, 5, 240, 240), (2, 21, 1025, 513), (8, 91, 300, 400), (128, 4, 17, 33),
)):  # fmt: skip
    for at, kind in enumerate(("f32", "f16")):
        case("picture", f"loss {shape} {kind}", picture_loss(shape, kind, (number + at) % 3 == 2))
        if number % 2 == at:
            case("picture", f"softmax {shape} {kind}", softmax(shape, kind, 1, at == 0))
for shape in ((8192, 3000), (4096, 4096), (2048, 6000), (16384, 4096), (1024, 8192), (8192, 8192), (2048, 2500), (4096, 9000), (8192, 10000), (2048, 12000), (1024, 16384), (4096, 5001)):  # fmt: skip
    for at, kind in enumerate(("f32", "bf16")):
        case("long rows", f"softmax {shape} {kind}", softmax(shape, kind, -1, (shape[0] // 1024 + at) % 2 == 0))


# ---- reductions ----
def reduction(shape, what, dims, kind, last=False):
    def make():
        x = tensor(*shape, kind=kind)
        x = x.contiguous(memory_format=torch.channels_last) if last else x
        calls = {
            "sum": lambda: x.sum(dims), "mean": lambda: x.mean(dims), "max": lambda: x.amax(dims), "max and where": lambda: x.max(dims),
            "norm": lambda: torch.linalg.vector_norm(x, dim=dims), "widened": lambda: x.sum(dims, dtype=torch.float32),
            "any": lambda: (x > 0).any(dims), "var": lambda: x.var(dims),
        }  # fmt: skip
        return calls[what], x

    return make


for number, (shape, what, dims) in enumerate((
    ((16, 512, 96, 96), "sum", (0, 2, 3)), ((64, 256, 56, 56), "sum", (0, 2, 3)), ((128, 64, 112, 112), "mean", (2, 3)), ((96, 448, 28, 28), "mean", (2, 3)), ((256, 2048, 7, 7), "mean", (2, 3)), ((8, 3, 512, 512), "sum", (0, 2, 3)),
    ((16, 256, 1024, 20), "max and where", -1), ((16, 64, 1024, 20), "max and where", -1), ((16, 1024, 20, 128), "sum", 2), ((16, 1024, 20, 64), "sum", 1), ((2, 4096, 8, 4, 64), "sum", 3), ((1, 8192, 8, 4, 128), "sum", 3), ((4, 2048, 32, 128), "sum", 1),
    ((64, 197, 768), "mean", 1), ((64, 197, 768), "sum", (0, 1)), ((128, 12, 64, 64), "sum", 0), ((128, 12, 64, 32), "norm", -1), ((2048, 3, 64, 32), "norm", -1), ((131072, 288), "sum", 0), ((131072, 96), "sum", 0), ((32768, 576), "sum", 0), ((32768, 192), "sum", 0),
    ((393216, 256), "sum", 0), ((393216, 128), "sum", 0), ((200000, 192), "sum", 0), ((200000, 64), "sum", 0), ((16384, 768), "sum", 0), ((16384, 3072), "sum", 0), ((8192, 4096), "sum", 0), ((8192, 1024), "sum", 0), ((4096, 4096), "sum", 0), ((4096, 14336), "sum", 0),
    ((4, 1024, 1024), "sum", (0, 1)), ((65536, 16), "sum", -1), ((1000000, 8), "sum", -1), ((1000000, 3), "sum", -1), ((262144, 32), "max", -1), ((262144, 32), "sum", -1), ((32, 4096, 512), "max", 1), ((32, 4096, 512), "max and where", 1), ((8, 32, 1024, 1024), "sum", -1), ((8, 32, 1024, 1024), "max", -1),
    ((1 << 22,), "sum", 0), ((1 << 24,), "norm", 0), ((1 << 26,), "any", 0), ((512, 512, 64), "var", (0, 1)), ((4096, 1024), "var", 0), ((2048, 7, 7, 64), "mean", (1, 2)), ((128, 16, 28, 28, 8), "sum", (0, 2, 3)), ((64, 512, 14, 14), "max", (2, 3)), ((1024, 128, 50), "sum", 1), ((50, 1024, 256), "sum", 0),
)):  # fmt: skip
    for at, kind in enumerate(("f32", "bf16")):
        if at == number % 2 or (what == "sum" and len(shape) == 2 and shape[-1] > 32):
            case("reduced", f"{what} {shape} {dims} {kind}", reduction(shape, what, dims, kind))
    if len(shape) == 4 and dims in ((0, 2, 3), (2, 3)):
        case("reduced", f"{what} {shape} {dims} last", reduction(shape, what, dims, "bf16", True))


# ---- gradients of small embeddings ----
def embedding(rows, count, width, how, kind):
    def make():
        if how == "one":
            at = torch.zeros(count, dtype=torch.long, device=DEV)
        elif how == "powers":  # as often as words are used
            share = 1 / torch.arange(1, rows + 1, device=DEV, dtype=torch.float32)
            at = torch.multinomial(share / share.sum(), count, replacement=True)
        else:
            at = torch.randint(rows, (count,), device=DEV)
        values = tensor(count, width, kind=kind)
        return (lambda: torch.ops.aten.embedding_dense_backward(values, at, rows, -1, False)), values

    return make


for number, (rows, count, width) in enumerate((
    (2, 16384, 768), (2, 4096, 1024), (32, 65536, 64), (512, 65536, 64), (1024, 65536, 64), (1024, 16384, 256), (4096, 65536, 64), (100, 200000, 32), (8, 1000000, 16), (512, 16384, 768), (4, 32768, 4096), (64, 8192, 2048), (1024, 262144, 128), (8192, 262144, 64), (30522, 16384, 768), (50257, 8192, 768), (200000, 131072, 64),
)):  # fmt: skip
    for at, how in enumerate(("random", "powers", "one")):
        if how != "one" or rows <= 1024:
            case("few rows", f"{rows} {count} {width} {how}", embedding(rows, count, width, how, "f32" if (number + at) % 4 else "bf16"))  # fmt: skip


# ---- concatenations of odd widths ----
def joined(shapes, dim, kind):
    def make():
        parts = [tensor(*shape, kind=kind) for shape in shapes]
        return (lambda: torch.cat(parts, dim)), parts[0]

    return make


for number, (shapes, dim) in enumerate((
    (((393216, 3), (393216, 60)), -1), (((393216, 256), (393216, 63)), -1), (((393216, 256), (393216, 27)), -1), (((200000, 64),) * 3, -1), (((16, 64, 20480), (16, 64, 20480)), 1), (((8, 1, 768), (8, 196, 768)), 1), (((64, 1, 768), (64, 196, 768)), 1), (((4, 32, 2048, 64),) * 2, -1), (((4, 2048, 32, 32),) * 2, -1), (((16384, 13), (16384, 416)), 1), (((65536, 7),) * 9, 1), (((1000000, 5), (1000000, 3)), 1), (((32, 256, 56, 56), (32, 64, 56, 56)), 1), (((2, 8, 4095, 128), (2, 8, 1, 128)), 2), (((8192, 4096),) * 4, 0), (((1024, 33, 65), (1024, 31, 65)), 1),
)):  # fmt: skip
    for kind in ("f32", "bf16"):
        case("joined", f"{shapes[0]} and {len(shapes) - 1} {shapes[-1]} {dim} {kind}", joined(shapes, dim, kind))


# ---- kernels of pictures that no model knew ----
def with_gradient(shape, kind, call, last=False):
    def make():
        x = tensor(*shape, kind=kind)
        x = (x.contiguous(memory_format=torch.channels_last) if last else x).requires_grad_()
        y = call(x)
        g = torch.randn_like(y)
        return (lambda: torch.autograd.grad(call(x), x, g)), x.detach()

    return make


def gridded(shape, part):
    places = []

    def call(x):
        if not places:
            places.append(torch.rand(shape[0], shape[2] // part, shape[3] // part, 2, device=DEV).to(x.dtype) * 2 - 1)
        return F.grid_sample(x, places[0], align_corners=False)

    return call


for number, shape in enumerate((
    (8, 64, 128, 128), (16, 3, 256, 256), (2, 256, 64, 64), (32, 16, 96, 96), (4, 128, 200, 200), (64, 3, 64, 64), (1, 512, 64, 64),
)):  # fmt: skip
    n, c, h, w = shape
    for at, (name, call) in enumerate((
        ("grid", gridded(shape, 1)),
        ("grid halved", gridded(shape, 2)),
        ("unfold", lambda x: F.unfold(x[:, :64], 3, padding=1)), ("unfold by 4", lambda x: F.unfold(x, 4, stride=4)),
        ("reflected", lambda x: F.pad(x, (1, 1, 1, 1), mode="reflect")), ("replicated", lambda x: F.pad(x, (2, 2, 2, 2), mode="replicate")),
        ("reflected lines", lambda x: F.pad(x.flatten(2), (16, 16), mode="reflect")), ("windows", lambda x: x.unfold(2, 3, 1)),
        ("group norm", lambda x: F.group_norm(x, 8 if x.shape[1] % 8 == 0 else 1)), ("spectrum", lambda x: torch.fft.rfft2(x).abs()),
    )):  # fmt: skip
        kind = "f16" if (number + at) % 3 == 0 and name != "spectrum" else "f32"
        if (number + at) % 2 == 0 or number < 2:
            case("pictures", f"{name} {shape} {kind}", with_gradient(shape, kind, call, name == "group norm"))


# ---- attention of blocks ----
for batch, heads, keys, length, depth, mask, size in (
    (2, 16, 16, 4096, 64, "window", 512), (1, 32, 8, 4096, 128, "documents", 8), (2, 32, 32, 2048, 128, "causal", 1), (4, 12, 12, 2048, 64, "documents", 4), (1, 16, 4, 8192, 64, "causal", 1), (1, 8, 8, 4096, 128, "both sides", 512),
):  # fmt: skip
    case("flex", f"{batch} {heads} {keys} {length} {depth} {mask} {size}", base.flex(batch, heads, keys, length, depth, mask, size))  # fmt: skip


def masked(length, documents):
    """A compiled create_block_mask, as a program calls it each step."""

    def make():
        from torch.nn.attention.flex_attention import create_block_mask

        cuts = torch.cat([torch.zeros(1), torch.randint(1, length, (documents,)).sort()[0]]).to(DEV)
        number = torch.bucketize(torch.arange(length, device=DEV), cuts, right=True)
        torch._dynamo.reset()
        made = torch.compile(create_block_mask)

        def rule(b, h, q, k):
            return (q >= k) & (number[q] == number[k])

        return (lambda: made(rule, None, None, length, length, device=DEV)), None

    return make


for length, documents in ((2048, 4), (8192, 16)):
    case("flex", f"mask of {length} {documents} documents", masked(length, documents))


# ---- names of the kernels of products ----
seen = []
take = base.events_of


def events_of(found):
    seen[:] = take(found)
    return seen


measure = base.measured


def measured(family, name, make, around):
    lines = measure(family, name, make, around)
    if family == "unaligned":
        inside = base.trace.launched_within(seen, "before")
        each = defaultdict(list)
        for event in seen:
            if event.get("cat") == "kernel" and event["args"]["correlation"] not in inside:
                each[event["name"]].append(event["dur"])
        calls = base.CALLS * len(base.CONDITIONS)
        told = [[kernel[:160], len(us) / calls, round(median(us), 3)] for kernel, us in each.items()]
        lines = [line | {"kernels": told} for line in lines]
    return lines


base.events_of, base.measured = events_of, measured

if __name__ == "__main__":
    print(json.dumps({family: len(cases) for family, cases in base.FAMILIES.items()}), flush=True)
    sys.exit(base.main())
