"""Kernels of one GPU under the conditions that a step has: what they read is in the L2 cache or not, and the GPU runs
at its full clock or at its power limit.

    python conditions_on_gpu.py OUT.jsonl [--for SECONDS] [FAMILY ...]    # needs the repository on PYTHONPATH

Each case is called four times under torch.profiler in each of four conditions: `cold` (320 MB are read before), `written` (then
the first operand is written, too), `hot` (called right before) and `limit` (after 3 ms of products that keep the GPU at its power limit;
the first operand is written). A line is one signature of one case: launches a call, median us of a launch in each condition, and
us of the last products before the calls at the limit. Cases are taken from all families in turn; `flex`, which compiles, only
if it is named."""

import argparse
import json
import os
import tempfile
import time
from collections import defaultdict
from statistics import median

import torch
from torch.nn import functional as F
from torch.profiler import ProfilerActivity, profile, record_function

from profiles.timings import trace

DEV = "cuda"
TYPES = {"f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16}
CONDITIONS = ("cold", "written", "hot", "limit")
CALLS = 4
FAMILIES = defaultdict(list)


def case(family, name, make):
    """Registers a case. `make`: returns the function that is called, and the operand that is written before."""
    FAMILIES[family].append((name, make))


def tensor(*shape, kind="f32"):
    return torch.randn(shape, device=DEV).to(TYPES[kind])


# ---- norms ----
def norm(rows, width, kind, rms, weighted=True):
    def make():
        x, w, b = tensor(rows, width, kind=kind), tensor(width, kind=kind), tensor(width, kind=kind)
        leaves = [one.requires_grad_() for one in ((x, w) if rms else (x, w, b))]
        gradient = tensor(rows, width, kind=kind)

        def call():
            y = F.rms_norm(x, (width,), w, 1e-5) if rms else F.layer_norm(x, (width,), w, b)
            torch.autograd.grad(y, leaves, gradient)

        return call, x.detach()

    return make


for rows, width in (
    (8192, 2048), (8192, 4096), (4096, 3072), (16384, 2048), (2048, 4096), (2048, 2048), (8192, 768), (8192, 1024), (16384, 768), (32768, 768),
    (4096, 4096), (4096, 5120), (16384, 1024), (4096, 8192), (1024, 1024), (100352, 96), (25088, 192), (6272, 384), (1568, 768), (200704, 128),
    (131072, 256), (65536, 512), (25216, 768), (6304, 1024), (3152, 1280), (12288, 1536), (512, 4096), (262144, 64), (131072, 128), (49152, 320),
):  # fmt: skip
    for kind, rms in (("bf16", True), ("bf16", False), ("f32", False), ("f32", True), ("f16", False)):
        if kind != "f16" or width < 1100:
            case("norm", f"{rows} {width} {kind} rms {rms}", norm(rows, width, kind, rms))


# ---- optimizers: lists of tensors ----
def llama(width, inner, keys, layers, vocabulary, parts):
    """Returns the shapes that one of `parts` ranks holds."""
    layer = [
        (width, width),
        (keys, width),
        (keys, width),
        (width, width),
        (inner, width),
        (width, inner),
        (inner, width),
        (width,),
        (width,),
    ]
    shapes = [(vocabulary, width), *(one for _ in range(layers) for one in layer), (width,), (vocabulary, width)]
    return [(max(one[0] // parts, 1), *one[1:]) for one in shapes]


def gpt(width, layers):
    layer = [
        (width,),
        (width,),
        (3 * width, width),
        (3 * width,),
        (width, width),
        (width,),
        (width,),
        (width,),
        (4 * width, width),
        (4 * width,),
        (width, 4 * width),
        (width,),
    ]
    return [(50304, width), (1024, width), *(one for _ in range(layers) for one in layer), (width,), (width,)]


LISTS = {
    "llama 8b/8 of 4": llama(4096, 14336, 1024, 8, 128256, 4), "llama 1b of 4": llama(2048, 8192, 512, 16, 128256, 4),
    "llama 8b/4": llama(4096, 14336, 1024, 4, 128256, 1), "llama 1b": llama(2048, 8192, 512, 16, 128256, 1),
    "llama 3b of 8": llama(3072, 8192, 1024, 14, 128256, 8), "gpt2": gpt(768, 12), "gpt2 medium": gpt(1024, 24),
    "8 wide": [(4096, 4096)] * 8, "40 of 2,048": [(2048, 2048)] * 40, "60 of 512": [(512, 512)] * 60, "200 of 65,000": [(65000,)] * 200,
    "100 of 256": [(256, 256, 3, 3)] * 20 + [(256,)] * 80, "400 of 8,000": [(8000,)] * 400, "1 of 40 million": [(40_000_000,)],
    "30 of 100,000": [(100_000,)] * 30, "2 of 300,000": [(300_000,)] * 2,
}  # fmt: skip


def update(shapes, what, kind):
    def make():
        lists = [[tensor(*shape, kind=kind) for shape in shapes] for _ in range(4)]
        p, g, m, v = lists
        v = [one.abs_() for one in v]
        steps = [torch.ones((), device=DEV) for _ in shapes]
        common = dict(lr=1e-4, weight_decay=0.1, eps=1e-8, maximize=False)
        if what == "adamw":
            return (
                lambda: torch._fused_adamw_(p, g, m, v, [], steps, beta1=0.9, beta2=0.95, amsgrad=False, **common)
            ), g[0]
        if what == "adam":
            return (
                lambda: torch._fused_adam_(p, g, m, v, [], steps, beta1=0.9, beta2=0.95, amsgrad=False, **common)
            ), g[0]
        if what == "sgd":
            return (lambda: torch._fused_sgd_(p, g, m, weight_decay=1e-4, momentum=0.9, lr=0.1, dampening=0.0, nesterov=False, maximize=False, is_first_step=False)), g[0]  # fmt: skip
        calls = {
            "mul": lambda: torch._foreach_mul_(p, 0.999),
            "mul lists": lambda: torch._foreach_mul_(p, g),
            "add": lambda: torch._foreach_add_(p, g, alpha=0.1),
            "lerp": lambda: torch._foreach_lerp_(m, g, 0.1),
            "addcmul": lambda: torch._foreach_addcmul_(v, g, g, 0.001),
            "addcdiv": lambda: torch._foreach_addcdiv_(p, m, v, 0.001),
            "sqrt": lambda: torch._foreach_sqrt(v),
            "div": lambda: torch._foreach_div_(v, 2.0),
            "norm": lambda: torch._foreach_norm(g, 2.0),
            "zero": lambda: torch._foreach_zero_(g),
            "copy": lambda: torch._foreach_copy_(p, m),
        }
        return calls[what], g[0]

    return make


for number, (name, shapes) in enumerate(LISTS.items()):
    for what in ("adamw", "adam", "sgd"):
        for kind in ("f32", "bf16"):
            if sum(torch.Size(one).numel() for one in shapes) < 2e9 and (
                what == "adamw" or (number + (what == "adam")) % 2
            ):
                case("optimizer", f"{what} {name} {kind}", update(shapes, what, kind))
    for at, what in enumerate(
        ("mul", "add", "lerp", "addcmul", "addcdiv", "sqrt", "div", "norm", "zero", "copy", "mul lists")
    ):
        if (number + at) % 3 == 0:
            case("foreach", f"{what} {name}", update(shapes, what, "f32" if (number + at) % 2 else "bf16"))


# ---- what FSDP2 copies ----
LAYERS = {
    "8b": [(4096, 4096), (1024, 4096), (1024, 4096), (4096, 4096), (14336, 4096), (4096, 14336), (14336, 4096), (4096,), (4096,)],
    "1b": [(2048, 2048), (512, 2048), (512, 2048), (2048, 2048), (8192, 2048), (2048, 8192), (8192, 2048), (2048,), (2048,)],
    "3b": [(3072, 3072), (1024, 3072), (1024, 3072), (3072, 3072), (8192, 3072), (3072, 8192), (8192, 3072), (3072,), (3072,)],
    "gpt2": gpt(768, 1)[2:],
    "embedding": [(128256, 2048), (2048,)],
    "head of 1b": [(128256, 2048), (2048,), (2048, 128256)],
    "bert": gpt(1024, 4)[2:],
}  # fmt: skip


def split(shapes, ranks, kind):
    def make():
        shapes_ = [one for one in shapes]
        of_rank = [-(-one[0] // ranks) * (one[1] if len(one) > 1 else 1) for one in shapes_]
        gathered = tensor(ranks, sum(of_rank), kind=kind)
        outs = [torch.empty(ranks, n, device=DEV, dtype=gathered.dtype) for n in of_rank]
        return (lambda: torch.split_with_sizes_copy(gathered, of_rank, dim=1, out=outs)), gathered

    return make


def chunks(shapes, ranks, kind, to):
    def make():
        gradients = [tensor(*one, kind=kind) for one in shapes]
        n = sum(-(-one[0] // ranks) * (one[1] if len(one) > 1 else 1) for one in shapes)
        out = torch.empty(ranks, n, device=DEV, dtype=TYPES[to])
        return (lambda: torch._chunk_cat(gradients, dim=0, num_chunks=ranks, out=out)), gradients[0]

    return make


for name, shapes in LAYERS.items():
    for ranks in (2, 4, 8, 64):
        for kind in ("bf16", "f32"):
            case("sharded", f"split {name} {ranks} {kind}", split(shapes, ranks, kind))
        for kind, to in (("bf16", "f32"), ("bf16", "bf16"), ("f32", "f32")):
            case("sharded", f"chunks {name} {ranks} {kind} {to}", chunks(shapes, ranks, kind, to))


# ---- softmax and loss ----
def loss(rows, classes, kind):
    def make():
        x = tensor(rows, classes, kind=kind).requires_grad_()
        y = torch.randint(classes, (rows,), device=DEV)
        return (lambda: torch.autograd.grad(F.cross_entropy(x, y), x)), x.detach()

    return make


def softmax(rows, classes, kind):
    def make():
        x, g = tensor(rows, classes, kind=kind).requires_grad_(), tensor(rows, classes, kind=kind)
        return (lambda: torch.autograd.grad(x.softmax(-1), x, g)), x.detach()

    return make


for rows, classes in (
    (8192, 128256), (4096, 128256), (2048, 128256), (8192, 50304), (8192, 50257), (4096, 32000), (16384, 32000), (2048, 151936), (16384, 30522), (1024, 50304), (4096, 256000),
    (512, 1000), (256, 1000), (65536, 64), (131072, 10), (8192, 2048), (8192, 1024), (4096, 8192), (65536, 100), (196608, 512), (98304, 1024), (49152, 197), (300000, 49), (12288, 1500),
):  # fmt: skip
    for kind in ("f32", "bf16"):
        if rows * classes < 1.1e9:
            case("softmax", f"loss {rows} {classes} {kind}", loss(rows, classes, kind))
            if classes < 20000:
                case("softmax", f"softmax {rows} {classes} {kind}", softmax(rows, classes, kind))


# ---- element-wise ----
def elementwise(count, what, kind):
    def make():
        x, y = tensor(count, kind=kind), tensor(count, kind=kind)
        out = torch.empty_like(x)
        other = torch.empty(count, device=DEV, dtype=torch.float32 if kind == "bf16" else torch.bfloat16)
        ops = torch.ops.aten
        mask = torch.rand(count, device=DEV) < 0.5
        calls = {
            "add": lambda: torch.add(x, y, out=out),
            "mul": lambda: torch.mul(x, y, out=out),
            "scaled": lambda: torch.mul(x, 0.5, out=out),
            "silu": lambda: ops.silu.out(x, out=out),
            "silu back": lambda: ops.silu_backward.grad_input(x, y, grad_input=out),
            "gelu": lambda: ops.gelu.out(x, out=out),
            "gelu back": lambda: ops.gelu_backward.grad_input(x, y, grad_input=out),
            "tanh back": lambda: ops.tanh_backward.grad_input(x, y, grad_input=out),
            "tanh": lambda: torch.tanh(x, out=out),
            "relu": lambda: torch.clamp_min(x, 0, out=out),
            "cast": lambda: other.copy_(x),
            "copy": lambda: out.copy_(x),
            "fill": lambda: out.fill_(1.0),
            "neg": lambda: torch.neg(x, out=out),
            "pow": lambda: torch.pow(x, 2, out=out),
            "pow 3": lambda: torch.pow(x, 3, out=out),
            "where": lambda: torch.where(mask, x, y),
            "dropout": lambda: ops.native_dropout(x, 0.1, True),
            "dropout back": lambda: ops.native_dropout_backward(x, mask, 1.1),
            "addcmul": lambda: torch.addcmul(x, x, y, out=out),
            "sin": lambda: torch.sin(x, out=out),
            "exp": lambda: torch.exp(x, out=out),
        }
        return calls[what], x

    return make


for number, count in enumerate((1 << 18, 1 << 20, 3 << 20, 1 << 23, 3 << 23, 1 << 26, 3 << 26, 1 << 29)):
    for at, what in enumerate(("add", "mul", "scaled", "silu", "silu back", "gelu", "gelu back", "tanh back", "tanh", "relu", "cast", "copy", "fill", "neg", "pow", "pow 3", "where", "dropout", "dropout back", "addcmul", "sin", "exp")):  # fmt: skip
        for kind in ("bf16", "f32"):
            if (number + at + (kind == "f32")) % 2 == 0 and (count < 1 << 29 or kind == "bf16"):
                case("element-wise", f"{what} {count} {kind}", elementwise(count, what, kind))


# ---- reductions ----
def reduction(shape, what, kind):
    def make():
        x = tensor(*shape, kind=kind)
        calls = {
            "rows": lambda: x.sum(-1),
            "columns": lambda: x.sum(0),
            "all": lambda: x.sum(),
            "mean": lambda: x.mean(-1),
            "mean 0": lambda: x.mean(0),
            "mean -2": lambda: x.mean(-2),
            "max": lambda: x.amax(-1),
            "max and where": lambda: x.max(-1),
            "norm": lambda: torch.linalg.vector_norm(x),
            "norm rows": lambda: torch.linalg.vector_norm(x, dim=-1),
            "norm columns": lambda: torch.linalg.vector_norm(x, dim=0),
            "var": lambda: x.var(-1),
            "argmax": lambda: x.argmax(-1),
            "widened": lambda: x.sum(0, dtype=torch.float32),
        }
        return calls[what], x

    return make


for number, shape in enumerate((
    (1024, 1024), (768, 3072), (4096, 1024), (2048, 2048), (8192, 768), (8192, 2048), (8192, 3072), (16384, 1024), (4096, 4096), (8192, 14336), (100352, 96),
    (25088, 192), (6272, 384), (1568, 768), (802816, 64), (32768, 50), (64, 65536), (16, 1048576), (1, 3145728), (4096, 128256), (512, 1024, 64), (8192, 4, 128), (65536, 3), (65536, 20), (65536, 128), (300, 70000),
)):  # fmt: skip
    for at, what in enumerate(("rows", "columns", "all", "mean", "mean 0", "mean -2", "max", "max and where", "norm", "norm rows", "norm columns", "var", "argmax", "widened")):  # fmt: skip
        kind = "f32" if (number + at) % 3 else "bf16"
        if (number + at) % 2 == 0 or what in ("columns", "all"):
            case("reduction", f"{what} {shape} {kind}", reduction(shape, what, kind))


# ---- gradients of gathers ----
def places(rows, count, how):
    if how == "random":
        return torch.randint(rows, (count,), device=DEV)
    if how == "sorted":
        return torch.randint(rows, (count,), device=DEV).sort()[0]
    if how == "each":
        return torch.arange(count, device=DEV) % rows
    if how == "repeated":
        return torch.arange(count, device=DEV) * rows // count
    return (rows * torch.rand(count, device=DEV) ** 4).long().clamp_(0, rows - 1)


def put(rows, count, width, how, kind, what):
    def make():
        at = places(rows, count, how)
        values, table = tensor(count, width, kind=kind), torch.zeros(rows, width, device=DEV, dtype=TYPES[kind])
        wide = at.view(-1, 1).expand(-1, width)
        calls = {
            "put": lambda: torch.ops.aten.index_put_(table, [at], values, True),
            "add": lambda: table.index_add_(0, at, values),
            "scatter": lambda: table.scatter_add_(0, wide, values),
            "get": lambda: table[at],
            "select": lambda: table.index_select(0, at),
            "embedding": lambda: torch.ops.aten.embedding_dense_backward(values, at, rows, -1, False),
        }
        return calls[what], values

    return make


for rows, count, width in (
    (16384, 327680, 64), (16384, 327680, 128), (16384, 327680, 6), (200000, 1600000, 64), (40000, 800000, 64), (50304, 8192, 768), (128256, 8192, 2048), (30522, 16384, 768),
    (1024, 8192, 768), (2048, 8192, 64), (2, 16384, 768), (65536, 524288, 32), (8192, 65536, 256), (4096, 4096, 1024), (1000, 1000000, 16),
):  # fmt: skip
    for at, how in enumerate(("random", "sorted", "each", "repeated", "few")):
        for number, what in enumerate(("put", "add", "scatter", "embedding", "get", "select")):
            if what in ("put", "scatter") or (at + number) % 3 == 0 or how == "random":
                kind = "f32" if (at + number + rows) % 3 else "bf16"
                case("rows", f"{what} {rows} {count} {width} {how} {kind}", put(rows, count, width, how, kind, what))


# ---- products ----
def product(m, n, k, turn, kind, batch=0):
    def make():
        torch.backends.cuda.matmul.allow_tf32 = kind == "tf32"
        lead = (batch,) if batch else ()
        own = "f32" if kind == "tf32" else "bf16" if kind in ("f8", "rows") else kind
        a = tensor(*lead, k, m, kind=own).transpose(-1, -2) if turn[0] == "T" else tensor(*lead, m, k, kind=own)
        b = tensor(*lead, n, k, kind=own).transpose(-1, -2) if turn[1] == "T" else tensor(*lead, k, n, kind=own)
        if kind == "f8":
            a, b = tensor(m, k).to(torch.float8_e4m3fn), tensor(n, k).to(torch.float8_e4m3fn).t()
            one = torch.ones((), device=DEV)
            return (lambda: torch._scaled_mm(a, b, one, one, out_dtype=torch.bfloat16)), None
        if kind == "rows":
            a, b = tensor(m, k).to(torch.float8_e4m3fn), tensor(n, k).to(torch.float8_e4m3fn).t()
            one, other = torch.ones(m, 1, device=DEV), torch.ones(1, n, device=DEV)
            return (lambda: torch._scaled_mm(a, b, one, other, out_dtype=torch.bfloat16)), None
        return (lambda: torch.matmul(a, b)), a

    return make


PRODUCTS = [
    (8192, 2048, 2048), (8192, 8192, 2048), (8192, 2048, 8192), (8192, 512, 2048), (2048, 8192, 8192), (512, 2048, 8192), (2048, 2048, 8192),
    (8192, 3584, 4096), (8192, 4096, 3584), (3584, 4096, 8192), (8192, 1024, 4096), (8192, 256, 4096), (8192, 14336, 4096), (4096, 14336, 8192),
    (8192, 1024, 1024), (8192, 3072, 1024), (8192, 4096, 1024), (8192, 1024, 4096), (1024, 4096, 8192), (4096, 1024, 8192), (3072, 1024, 8192), (8192, 50304, 1024), (50304, 1024, 8192), (8192, 1024, 50304),
    (8192, 768, 768), (8192, 2304, 768), (8192, 3072, 768), (8192, 768, 3072), (768, 3072, 8192), (768, 768, 16384), (16384, 768, 3072), (16384, 3072, 768), (3072, 768, 16384),
    (4096, 256, 256), (65536, 256, 256), (262144, 256, 60), (524288, 128, 256), (65536, 3, 64), (65536, 64, 3), (65536, 1, 128), (1048576, 64, 64), (327680, 64, 128), (16384, 1024, 320),
    (128, 1000, 2048), (256, 10, 784), (16, 4096, 4096), (1, 4096, 4096), (64, 11008, 4096), (32, 50304, 768), (128, 128, 65536), (96, 96, 100352), (384, 96, 100352), (100352, 96, 384), (100352, 288, 96),
    (1111, 777, 555), (4095, 4097, 1023), (3000, 1000, 500), (2050, 50257, 768), (511, 129, 33),
]  # fmt: skip
for number, (m, n, k) in enumerate(PRODUCTS):
    for at, turn in enumerate(("NT", "NN", "TN", "TT")):
        for by, kind in enumerate(("bf16", "tf32", "f32", "f16")):
            if (
                turn != "TT"
                and ((number + at + by) % 3 == 0 or kind == "bf16")
                and m * n * k < 3e12 / (8 if kind == "f32" else 1)
            ):
                case("product " + kind, f"{m} {n} {k} {turn} {kind}", product(m, n, k, turn, kind))
    if m % 16 == 0 and n % 16 == 0 and k % 16 == 0:
        case("product f8", f"{m} {n} {k} f8", product(m, n, k, "NT", "f8" if number % 3 else "rows"))
for number, (batch, m, n, k) in enumerate((
    (96, 1024, 1024, 64), (96, 1024, 64, 1024), (384, 512, 512, 64), (384, 512, 64, 512), (192, 1, 512, 64), (192, 1, 64, 512), (512, 1, 2048, 128), (512, 1, 128, 2048), (1024, 4, 1024, 128),
    (128, 197, 197, 64), (128, 197, 64, 197), (6144, 49, 49, 32), (6144, 49, 32, 49), (16, 1024, 1024, 64), (16, 1024, 64, 1024), (8, 2048, 14336, 4096), (8, 512, 4096, 14336), (32, 256, 1024, 1024), (64, 20, 64, 1024), (4096, 8, 8, 64), (20000, 3, 3, 3), (256, 128, 128, 128),
)):  # fmt: skip
    for at, turn in enumerate(("NN", "NT", "TN")):
        for by, kind in enumerate(("bf16", "tf32", "f32", "f16")):
            if (number + at + by) % 3 == 0 or (kind == "bf16" and at < 2):
                case("product batched", f"{batch} of {m} {n} {k} {turn} {kind}", product(m, n, k, turn, kind, batch))


def grouped(groups, rows, n, k, uneven):
    def make():
        shares = torch.rand(groups) ** 2 + 0.02 if uneven else torch.ones(groups)
        ends = (shares.cumsum(0) / shares.sum() * rows / 16).round().int() * 16
        ends[-1] = rows
        x, w, ends = tensor(rows, k, kind="bf16"), tensor(groups, n, k, kind="bf16"), ends.to(DEV)
        return (lambda: torch._grouped_mm(x, w.transpose(-1, -2), ends)), x

    return make


for groups, rows, n, k in ((8, 8192, 3584, 1024), (8, 8192, 1024, 3584), (8, 4096, 14336, 4096), (64, 8192, 1408, 2048), (64, 32768, 2048, 1408), (128, 16384, 768, 2048), (16, 8192, 2048, 1024), (32, 2048, 1024, 1024)):  # fmt: skip
    for uneven in (False, True):
        case("grouped", f"{groups} of {rows} {n} {k} uneven {uneven}", grouped(groups, rows, n, k, uneven))


# ---- attention ----
def attention(batch, heads, keys, length, depth, causal, kind, backend):
    def make():
        from torch.nn.attention import SDPBackend, sdpa_kernel

        q = tensor(batch, length, heads, depth, kind=kind).transpose(1, 2).requires_grad_()
        k, v = (tensor(batch, length, keys, depth, kind=kind).transpose(1, 2).requires_grad_() for _ in range(2))
        g = tensor(batch, length, heads, depth, kind=kind).transpose(1, 2)

        def call():
            with sdpa_kernel(getattr(SDPBackend, backend)):
                y = F.scaled_dot_product_attention(q, k, v, is_causal=causal, enable_gqa=heads != keys)
            torch.autograd.grad(y, (q, k, v), g)

        return call, q.detach()

    return make


for batch, heads, keys, length, depth, causal in (
    (2, 32, 32, 4096, 64, True), (2, 8, 8, 4096, 128, True), (1, 32, 32, 4096, 128, True), (4, 32, 32, 2048, 64, True), (1, 32, 8, 8192, 128, True), (8, 16, 16, 1024, 64, True), (8, 12, 12, 1024, 64, True),
    (32, 12, 12, 512, 64, False), (64, 12, 12, 197, 64, False), (64, 16, 16, 197, 64, False), (2, 8, 8, 16384, 128, True), (16, 16, 16, 256, 64, False), (4, 40, 40, 2048, 128, True), (32, 16, 16, 577, 64, False), (2, 16, 16, 4096, 40, False), (4, 8, 8, 4096, 80, False), (1, 24, 24, 4352, 128, False),
):  # fmt: skip
    for kind, backend in (
        ("bf16", "CUDNN_ATTENTION"),
        ("bf16", "FLASH_ATTENTION"),
        ("f16", "EFFICIENT_ATTENTION"),
        ("f32", "EFFICIENT_ATTENTION"),
    ):
        if (keys == heads or "EFF" not in backend) and (depth != 40 or "CUDNN" not in backend):
            case("attention", f"{batch} {heads} {keys} {length} {depth} {causal} {kind} {backend}", attention(batch, heads, keys, length, depth, causal, kind, backend))  # fmt: skip


def algebra(batch, n, what, kind="f32"):
    def make():
        x = tensor(*((batch,) if batch else ()), n, n, kind=kind)
        positive = x @ x.mT + n * torch.eye(n, device=DEV)
        calls = {
            "lu": lambda: torch.linalg.lu_factor(x),
            "qr": lambda: torch.linalg.qr(x),
            "cholesky": lambda: torch.linalg.cholesky(positive),
            "solve": lambda: torch.linalg.solve(x, x),
            "triangular": lambda: torch.linalg.solve_triangular(positive, x, upper=False),
            "inv": lambda: torch.linalg.inv(x),
            "cholesky solve": lambda: torch.cholesky_solve(x, positive),
            "det": lambda: torch.linalg.slogdet(x),
        }
        return calls[what], x

    return make


for batch, n in (
    (0, 256),
    (0, 1024),
    (0, 2048),
    (0, 4096),
    (64, 32),
    (1024, 32),
    (64, 128),
    (512, 128),
    (16, 512),
    (4, 1024),
    (1000, 8),
    (10000, 3),
    (100, 64),
    (2, 256),
    (8, 256),
):
    for what in ("lu", "qr", "cholesky", "triangular", "cholesky solve", "solve", "inv", "det"):
        one_by_one = what == "qr" and batch > 100
        if not one_by_one and (what not in ("solve", "inv", "det") or (n + batch) % 3 == 0):
            case("algebra", f"{what} {batch} of {n}", algebra(batch, n, what))


# ---- attention of blocks ----
def flex(batch, heads, keys, length, depth, mask, size):
    def make():
        from torch.nn.attention.flex_attention import create_block_mask, flex_attention

        torch.manual_seed(3)
        cuts = torch.cat([torch.zeros(1), torch.randint(1, length, (size,)).sort()[0]]).to(DEV)  # of documents
        number = torch.bucketize(torch.arange(length, device=DEV), cuts, right=True)
        rules = {
            "causal": lambda b, h, q, k: q >= k,
            "window": lambda b, h, q, k: (q >= k) & (q - k < size),
            "documents": lambda b, h, q, k: (q >= k) & (number[q] == number[k]),
            "both sides": lambda b, h, q, k: (q - k).abs() < size,
        }
        blocks = create_block_mask(rules[mask], None, None, length, length, device=DEV)
        q = tensor(batch, heads, length, depth, kind="bf16").requires_grad_()
        k, v = (tensor(batch, keys, length, depth, kind="bf16").requires_grad_() for _ in range(2))
        g = tensor(batch, heads, length, depth, kind="bf16")
        torch._dynamo.reset()
        run = torch.compile(flex_attention, dynamic=False)
        return (
            lambda: torch.autograd.grad(run(q, k, v, block_mask=blocks, enable_gqa=heads != keys), (q, k, v), g)
        ), q.detach()

    return make


for batch, heads, keys, length, depth, mask, size in (
    (1, 32, 8, 8192, 128, "documents", 8), (2, 32, 32, 2048, 64, "causal", 1), (1, 32, 8, 4096, 128, "causal", 1), (4, 16, 16, 4096, 64, "window", 512), (1, 32, 8, 8192, 128, "window", 1024),
    (2, 16, 16, 2048, 128, "documents", 16), (1, 16, 16, 16384, 64, "window", 256), (8, 12, 12, 1024, 64, "causal", 1), (1, 16, 16, 4096, 64, "both sides", 256),
):  # fmt: skip
    name = f"{batch} {heads} {keys} {length} {depth} {mask} {size}"
    case("flex", name, flex(batch, heads, keys, length, depth, mask, size))


# ---- how they are measured ----
class Surroundings:
    def __init__(self):
        self.much = torch.ones(80 << 20, device=DEV)  # 320 MB
        self.a, self.b = tensor(8192, 8192, kind="bf16"), tensor(8192, 8192, kind="bf16")
        self.c = torch.empty_like(self.a)

    def prepare(self, condition, call, operand):
        """Prepares the condition under a range, so that its kernels do not count."""
        with record_function("before"), torch.no_grad():
            if condition == "limit":
                for _ in range(2):
                    torch.mm(self.a, self.b, out=self.c)
            elif condition == "hot":
                call_with_gradients(call)
            else:
                self.much.sum()
            if condition in ("written", "limit") and operand is not None:
                operand.mul_(1.0)


def call_with_gradients(call):
    with torch.enable_grad():
        call()


def events_of(found):
    path = os.path.join(tempfile.gettempdir(), f"conditions.{os.getpid()}.json")
    found.export_chrome_trace(path)
    with open(path) as file:
        events = json.load(file)["traceEvents"]
    os.unlink(path)
    return events


def measured(family, name, make, around):
    torch.manual_seed(0)
    torch.backends.cuda.matmul.allow_tf32 = False
    call, operand = make()
    call_with_gradients(call), call_with_gradients(call)
    torch.cuda.synchronize()
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA], record_shapes=True) as found:
        for condition in CONDITIONS:
            if condition == "limit":
                with record_function("before"):
                    for _ in range(36):
                        torch.mm(around.a, around.b, out=around.c)
            for _ in range(CALLS):
                around.prepare(condition, call, operand)
                call_with_gradients(call)
        torch.cuda.synchronize()
    events = events_of(found)
    inside = trace.launched_within(events, "before")
    products = [e["dur"] for e in sorted((e for e in events if e.get("cat") == "kernel"), key=lambda e: e["ts"])
                if e["args"]["correlation"] in inside and "nvjet" in e["name"]]  # fmt: skip
    each = defaultdict(list)
    for one in trace.works(events, without="before"):
        each[one.signature].append(one.for_us)
    lines = []
    for signature, us in each.items():
        line = {"family": family, "case": name, "n": len(us) / CALLS / len(CONDITIONS)}
        part = len(us) // len(CONDITIONS)
        if len(us) % len(CONDITIONS) == 0:
            line |= {at: round(median(us[i * part : (i + 1) * part]), 3) for i, at in enumerate(CONDITIONS)}
        else:
            line["each"] = us[:64]
        lines.append(line | {"product": round(median(products[-4:]), 1) if products else None, "signature": signature})
    return lines


def in_turn(families):
    """A case of each family, then the next of each, so that a run that ends early has some of all."""
    lists = {
        family: iter(cases)
        for family, cases in FAMILIES.items()
        if (family in families if families else family != "flex")
    }
    longest = max(map(len, FAMILIES.values()))
    owed = dict.fromkeys(lists, 0.0)
    while lists:
        for family in list(lists):
            owed[family] += max(len(FAMILIES[family]) / longest, 0.4)
            while owed[family] >= 1 and family in lists:
                owed[family] -= 1
                if (one := next(lists[family], None)) is None:
                    del lists[family]
                else:
                    yield family, *one


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("out")
    parser.add_argument("families", nargs="*")
    parser.add_argument("--for", type=float, default=1e9, dest="seconds")
    parser.add_argument("--from", type=int, default=0, dest="first", help="cases that an earlier run has done")
    options = parser.parse_args()
    begin = time.time()
    around = Surroundings()
    with open(options.out, "a") as file:
        told = {"gpu": torch.cuda.get_device_name(0), "torch": torch.__version__, "date": time.strftime("%Y-%m-%d")}
        file.write(json.dumps(told) + "\n")
        for number, (family, name, make) in enumerate(in_turn(options.families)):
            if number < options.first:
                continue
            if time.time() - begin > options.seconds:
                print("out of time; the next case has --from", number, flush=True)
                break
            try:
                lines = measured(family, name, make, around)
            except Exception as error:
                lines = [{"family": family, "case": name, "error": repr(error)[:300]}]
                print(family, name, repr(error)[:200], flush=True)
            file.writelines(json.dumps(line) + "\n" for line in lines)
            file.flush()
            if number % 20 == 0:
                torch.cuda.empty_cache()
                print(f"{number} cases, {family} {name}: {time.time() - begin:.0f} s", flush=True)


if __name__ == "__main__":
    main()
