"""Kernels and training steps of one GPU, by cause: durations that CUPTI reports, with the operands' strides.

    python kernels_on_gpu.py OUT.jsonl [FAMILY ...]     # needs `profiles` on PYTHONPATH, torch, torchvision, transformers

Each case is called five times under torch.profiler. Before each call more than the L2 cache is read and the first
operand is written, as in the shipped tables. A line is one signature of one case: median duration in us, all five,
and of element-wise kernels the dims, strides and types of the op's inputs. Cases of `step_*` are one training step:
a line is the sum of all launches of a signature."""

import json, os, sys, time, tempfile
from collections import defaultdict
from statistics import median
import torch, torch.nn as nn, torch.nn.functional as F
from torch.profiler import ProfilerActivity, profile, record_function
from profiles.timings import trace

dev = "cuda"
CASES = []


def case(family, name, make):
    CASES.append((family, name, make))


def rnd(*shape, dtype=torch.bfloat16):
    return torch.randn(shape, device=dev).to(dtype)


DT = {"bf16": torch.bfloat16, "f32": torch.float32, "f16": torch.float16}


# ---- element-wise kernels whose operands are laid out differently ----
def permuted(shape, perm, dtype, how):
    def make():
        x = rnd(*shape, dtype=DT[dtype])
        y = x.permute(perm)
        if how == "copy":
            return (lambda: y.contiguous()), x
        out = rnd(*y.shape, dtype=DT[dtype])
        if how == "add":
            return (lambda: torch.add(out, y)), x
        if how == "addc":  # three inputs, one turned
            return (lambda: torch.addcmul(out, out, y)), x
        if how == "into":  # written turned
            return (lambda: y.copy_(out)), out
        if how == "cast":
            other = torch.float32 if dtype != "f32" else torch.bfloat16
            to = torch.empty(y.shape, device=dev, dtype=other)
            return (lambda: to.copy_(y)), x
        if how == "gelu":
            to = torch.empty(y.shape, device=dev, dtype=DT[dtype])
            return (lambda: torch.ops.aten.gelu.out(y, out=to)), x
        if how == "both":  # two inputs, both turned
            x2 = rnd(*shape, dtype=DT[dtype]).permute(perm)
            to = torch.empty(y.shape, device=dev, dtype=DT[dtype])
            return (lambda: torch.add(y, x2, out=to)), x

    return make


SHAPES = [
    ((1024, 1024), (1, 0)),
    ((4096, 4096), (1, 0)),
    ((8192, 8192), (1, 0)),
    ((16384, 2048), (1, 0)),
    ((2048, 16384), (1, 0)),
    ((65536, 64), (1, 0)),
    ((64, 65536), (1, 0)),
    ((524288, 16), (1, 0)),
    ((16, 524288), (1, 0)),
    ((1000003, 8), (1, 0)),
    ((8, 1000003), (1, 0)),
    ((32, 256, 56, 56), (0, 2, 3, 1)),
    ((32, 56, 56, 256), (0, 3, 1, 2)),
    ((16, 320, 64, 64), (0, 2, 3, 1)),
    ((16, 64, 64, 320), (0, 3, 1, 2)),
    ((8, 128, 128, 128), (0, 2, 3, 1)),
    ((64, 3, 224, 224), (0, 2, 3, 1)),
    ((64, 224, 224, 3), (0, 3, 1, 2)),
    ((64, 768, 196), (0, 2, 1)),
    ((64, 196, 768), (0, 2, 1)),
    ((8, 1024, 1500), (0, 2, 1)),
    ((16, 12, 512, 512), (0, 1, 3, 2)),
    ((32, 12, 512, 64), (0, 1, 3, 2)),
    ((8, 2048, 16, 64), (0, 2, 3, 1)),
    ((8, 2048, 16, 128), (0, 2, 1, 3)),
    ((32, 512, 12, 64), (0, 2, 1, 3)),
    ((128, 49, 3, 6, 32), (2, 0, 3, 1, 4)),
    ((512, 32, 1024), (1, 0, 2)),
    ((512, 1024, 32), (2, 0, 1)),
    ((256, 64, 32, 16), (3, 2, 1, 0)),
]
for number, (shape, perm) in enumerate(SHAPES):
    for dtype in ("bf16", "f32"):
        case("transposed", f"copy {dtype} {shape} {perm}", permuted(shape, perm, dtype, "copy"))
        for how in ("add", "cast", "into", "gelu", "both", "addc"):
            if (number + ("add", "cast", "into", "gelu", "both", "addc").index(how)) % 3 == (dtype == "f32"):
                case("transposed", f"{how} {dtype} {shape} {perm}", permuted(shape, perm, dtype, how))


def sliced(rows, width, step, dtype):
    def make():
        x = rnd(rows, width * step, dtype=DT[dtype])
        y = x[:, ::step]
        return (lambda: y.contiguous()), x

    return make


for step in (2, 3, 4, 16):
    for dtype in ("bf16", "f32"):
        case("transposed", f"step {step} {dtype}", sliced(8192, 1024, step, dtype))


# ---- rows by index: graphs, embeddings ----
def edges(nodes, count, how):
    g = torch.Generator(device=dev).manual_seed(1)
    if how == "random":
        return torch.randint(0, nodes, (count,), device=dev, generator=g)
    if how == "sorted":
        return torch.randint(0, nodes, (count,), device=dev, generator=g).sort()[0]
    if how == "local":
        at = torch.arange(count, device=dev) * nodes // count
        return (at + torch.randint(-50, 51, (count,), device=dev, generator=g)).clamp_(0, nodes - 1)
    return (
        (nodes * torch.rand(count, device=dev, generator=g) ** 4).long().clamp_(0, nodes - 1)
    )  # few rows are used often


def graph(what, nodes, count, width, how, dtype):
    def make():
        x, e = rnd(nodes, width, dtype=DT[dtype]), edges(nodes, count, how)
        src, out = rnd(count, width, dtype=DT[dtype]), torch.zeros(nodes, width, device=dev, dtype=DT[dtype])
        wide = e.view(-1, 1).expand(-1, width)
        if what == "index_select":
            return (lambda: torch.index_select(x, 0, e)), x
        if what == "index":
            return (lambda: x[e]), x
        if what == "gather":
            return (lambda: torch.gather(x, 0, wide)), x
        if what == "scatter_add":
            return (lambda: out.scatter_add_(0, wide, src)), src
        if what == "index_add":
            return (lambda: out.index_add_(0, e, src)), src
        if what == "scatter_reduce":
            return (lambda: out.scatter_reduce_(0, wide, src, "amax", include_self=False)), src
        if what == "scatter":
            return (lambda: out.scatter_(0, wide, src)), src
        if what == "index_put":
            return (lambda: out.index_put_((e,), src, accumulate=True)), src
        if what == "embedding_backward":
            return (lambda: torch.ops.aten.embedding_dense_backward(src, e, nodes, -1, False)), src

    return make


GRAPHS = [
    (2708, 10556, 64),
    (20000, 100000, 16),
    (20000, 400000, 64),
    (170000, 1200000, 128),
    (170000, 1200000, 40),
    (100000, 1000000, 256),
    (1000000, 2000000, 32),
    (4096, 131072, 512),
    (230000, 4000000, 8),
]
for number, (nodes, count, width) in enumerate(GRAPHS):
    for at, what in enumerate(
        (
            "index_select",
            "gather",
            "scatter_add",
            "index_add",
            "scatter_reduce",
            "scatter",
            "index",
            "index_put",
            "embedding_backward",
        )
    ):
        for how in ("random", "sorted", "local", "few"):
            if how == "random" or (number + at + ("sorted", "local", "few").index(how)) % 3 == 0:
                if what in ("index_put", "embedding_backward", "index") and (how != "random" or number % 2):
                    continue
                case("index", f"{what} {nodes} {count} {width} {how} f32", graph(what, nodes, count, width, how, "f32"))
    for what in ("index_select", "scatter_add", "index_add"):
        case("index", f"{what} {nodes} {count} {width} random bf16", graph(what, nodes, count, width, "random", "bf16"))


def along(what, rows, width, count, dtype):  # gather and scatter along the last dimension
    def make():
        x, i = rnd(rows, width, dtype=DT[dtype]), torch.randint(0, width, (rows, count), device=dev)
        y = rnd(rows, count, dtype=DT[dtype])
        if what == "gather":
            return (lambda: torch.gather(x, 1, i)), x
        return (lambda: x.scatter_add_(1, i, y)), y

    return make


for rows, width, count in ((8192, 32000, 1), (8192, 1024, 1024), (65536, 64, 8), (2048, 4096, 512)):
    for what in ("gather", "scatter_add"):
        case("index", f"{what} last {rows} {width} {count}", along(what, rows, width, count, "f32"))


# ---- recurrent networks ----
def recurrent(kind, layers, hidden, batch, steps, dtype, both=False, width=None):
    def make():
        width_ = width or hidden
        net = getattr(nn, kind)(width_, hidden, layers, bidirectional=both).to(dev, DT[dtype])
        net.flatten_parameters()
        x = rnd(steps, batch, width_, dtype=DT[dtype]).requires_grad_()

        def call():
            y, _ = net(x)
            y.backward(y.detach())

        return call, None

    return make


for kind, layers, hidden, batch, steps, dtype in (
    ("LSTM", 1, 512, 64, 128, "f32"),
    ("LSTM", 2, 512, 64, 128, "f32"),
    ("LSTM", 3, 512, 64, 128, "f32"),
    ("LSTM", 4, 512, 64, 64, "f32"),
    ("LSTM", 2, 650, 20, 35, "f32"),
    ("LSTM", 2, 1500, 20, 35, "f32"),
    ("LSTM", 3, 1150, 64, 70, "f32"),
    ("LSTM", 3, 1024, 32, 200, "f32"),
    ("LSTM", 1, 1024, 128, 64, "f32"),
    ("LSTM", 3, 1024, 128, 64, "f32"),
    ("LSTM", 2, 256, 256, 100, "f32"),
    ("LSTM", 1, 1024, 64, 128, "bf16"),
    ("LSTM", 3, 1024, 64, 128, "bf16"),
    ("LSTM", 3, 512, 128, 100, "f16"),
    ("LSTM", 2, 2048, 64, 50, "f16"),
    ("LSTM", 4, 768, 32, 100, "bf16"),
    ("GRU", 1, 512, 64, 128, "f32"),
    ("GRU", 3, 512, 64, 128, "f32"),
    ("GRU", 2, 1024, 64, 100, "bf16"),
    ("GRU", 3, 768, 32, 150, "f32"),
):
    case(
        "recurrent",
        f"{kind} {layers} {hidden} {batch} {steps} {dtype}",
        recurrent(kind, layers, hidden, batch, steps, dtype),
    )
for kind, layers, hidden, batch, steps, dtype in (
    ("LSTM", 2, 320, 32, 150, "f32"),
    ("LSTM", 3, 512, 32, 150, "bf16"),
    ("GRU", 5, 800, 16, 150, "f32"),
    ("LSTM", 1, 256, 128, 100, "f32"),
):
    case(
        "recurrent",
        f"{kind} both {layers} {hidden} {batch} {steps} {dtype}",
        recurrent(kind, layers, hidden, batch, steps, dtype, both=True),
    )


# ---- convolutions ----
def convolution(x, w, stride=1, padding=0, dilation=1, groups=1, dtype="bf16", layout="nhwc"):
    def make():
        n = len(x) - 2
        fmt = (
            {2: torch.channels_last, 3: torch.channels_last_3d}.get(n) if layout == "nhwc" else torch.contiguous_format
        )
        a, b = rnd(*x, dtype=DT[dtype]), rnd(*w, dtype=DT[dtype])
        if fmt is not None and n > 1:
            a, b = a.to(memory_format=fmt), b.to(memory_format=fmt)
        a.requires_grad_(), b.requires_grad_()
        f = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}[n]

        def call():
            y = f(a, b, None, stride, padding, dilation, groups)
            torch.autograd.grad(y, (a, b), y.detach())

        return call, None

    return make


def convs(family, shapes, kinds=(("bf16", "nhwc"), ("bf16", "nchw"), ("f16", "nchw"), ("f32", "nchw"))):
    for number, shape in enumerate(shapes):
        for at, (dtype, layout) in enumerate(kinds):
            if (number + at) % 4 != 3:
                case(
                    family, f"{shape} {dtype} {layout}", convolution(*shape[:2], **shape[2], dtype=dtype, layout=layout)
                )


convs(
    "dilated",
    [
        ((b, c, s, s), (o, c, 3, 3), dict(padding=d, dilation=d))
        for b, c, o, s, d in (
            (8, 2048, 256, 33, 6),
            (8, 2048, 256, 33, 12),
            (8, 2048, 256, 33, 18),
            (4, 2048, 256, 65, 12),
            (4, 2048, 256, 65, 24),
            (4, 2048, 256, 65, 36),
            (16, 512, 512, 33, 2),
            (8, 512, 512, 65, 4),
            (8, 256, 256, 65, 2),
            (16, 256, 256, 33, 2),
            (8, 512, 512, 28, 4),
            (16, 64, 64, 128, 2),
            (16, 64, 64, 128, 8),
            (4, 128, 128, 64, 16),
            (8, 320, 256, 64, 12),
        )
    ],
)
convs(
    "dilated",
    [
        ((b, c, t), (o, c, k), dict(padding=d * (k - 1) // 2, dilation=d))
        for b, c, o, t, k, d in (
            (8, 128, 128, 16000, 3, 1),
            (8, 128, 128, 16000, 3, 16),
            (8, 128, 256, 16000, 3, 256),
            (16, 512, 512, 3200, 3, 8),
            (16, 256, 256, 8192, 5, 4),
        )
    ],
    (("bf16", "nchw"), ("f32", "nchw"), ("f16", "nchw")),
)
convs(
    "groups",
    [
        ((b, c, s, s), (c, c // g, 3, 3), dict(padding=1, groups=g, stride=st))
        for b, c, g, s, st in (
            (64, 128, 32, 56, 1),
            (64, 256, 32, 56, 2),
            (64, 256, 32, 28, 1),
            (64, 512, 32, 28, 2),
            (64, 512, 32, 14, 1),
            (64, 1024, 32, 14, 2),
            (64, 1024, 32, 7, 1),
            (32, 256, 32, 56, 1),
            (32, 512, 32, 28, 1),
            (32, 1024, 32, 14, 1),
            (32, 2048, 32, 7, 1),
            (64, 64, 4, 56, 1),
            (64, 144, 9, 28, 1),
            (64, 320, 20, 14, 1),
            (64, 224, 2, 56, 2),
            (64, 448, 4, 28, 1),
            (64, 896, 8, 14, 1),
            (96, 128, 2, 56, 1),
            (96, 192, 8, 28, 1),
        )
    ],
)
convs(
    "3d",
    [
        ((b, c, t, s, s), (o, c, kt, ks, ks), dict(stride=st, padding=(kt // 2, ks // 2, ks // 2)))
        for b, c, o, t, s, kt, ks, st in (
            (8, 3, 64, 16, 112, 3, 7, (1, 2, 2)),
            (8, 64, 64, 16, 56, 3, 3, 1),
            (8, 64, 128, 16, 56, 3, 3, 2),
            (8, 128, 128, 8, 28, 3, 3, 1),
            (8, 256, 256, 4, 14, 3, 3, 1),
            (8, 512, 512, 2, 7, 3, 3, 1),
            (8, 64, 128, 16, 56, 1, 1, 2),
            (8, 64, 144, 16, 56, 1, 3, 1),
            (8, 144, 64, 16, 56, 3, 1, 1),
            (8, 128, 288, 8, 28, 1, 3, 1),
            (8, 288, 128, 8, 28, 3, 1, 1),
            (2, 32, 32, 96, 96, 3, 3, 1),
            (2, 64, 64, 48, 48, 3, 3, 1),
            (2, 128, 128, 24, 24, 3, 3, 1),
            (2, 256, 256, 12, 12, 3, 3, 1),
            (2, 32, 64, 96, 96, 3, 3, 2),
            (1, 1, 32, 96, 96, 3, 3, 1),
            (1, 128, 128, 17, 64, 3, 3, 1),
            (8, 64, 256, 8, 56, 1, 1, 1),
            (8, 256, 64, 8, 56, 3, 1, 1),
        )
    ],
)


# ---- products in tf32 ----
def product(m, n, k, turn, batch=0):
    def make():
        torch.backends.cuda.matmul.allow_tf32 = True
        lead = (batch,) if batch else ()
        a = (
            rnd(*lead, k, m, dtype=torch.float32).transpose(-1, -2)
            if turn[0] == "t"
            else rnd(*lead, m, k, dtype=torch.float32)
        )
        b = (
            rnd(*lead, n, k, dtype=torch.float32).transpose(-1, -2)
            if turn[1] == "t"
            else rnd(*lead, k, n, dtype=torch.float32)
        )
        return (lambda: torch.matmul(a, b)), a

    return make


for number, (m, n, k) in enumerate(
    (
        (512, 768, 768),
        (2048, 768, 768),
        (4096, 768, 3072),
        (4096, 3072, 768),
        (8192, 1024, 1024),
        (8192, 4096, 1024),
        (8192, 1024, 4096),
        (2048, 2048, 2048),
        (4096, 4096, 4096),
        (8192, 8192, 8192),
        (16384, 512, 512),
        (16384, 256, 1024),
        (65536, 128, 128),
        (1024, 1000, 2048),
        (256, 4096, 4096),
        (128, 1024, 1024),
        (4096, 50257, 768),
        (50257, 768, 4096),
        (768, 3072, 16384),
        (100000, 64, 64),
        (1000, 1000, 1000),
        (4096, 1536, 511),
    )
):
    for turn in ("nt", "nn", "tn"):
        if (number + ("nt", "nn", "tn").index(turn)) % 2 == 0 or number in (3, 8):
            case("tf32", f"{m} {n} {k} {turn}", product(m, n, k, turn))
for batch, m, n, k in ((96, 512, 512, 64), (96, 512, 64, 512), (256, 197, 197, 64), (64, 1024, 128, 1024)):
    case("tf32", f"{batch}x {m} {n} {k}", product(m, n, k, "nt", batch))


# ---- whole training steps ----
def t5(size, batch, length):
    def make():
        from transformers import T5Config, T5ForConditionalGeneration

        c = dict(
            small=dict(d_model=512, d_ff=2048, num_layers=6, num_heads=8),
            base=dict(d_model=768, d_ff=3072, num_layers=12, num_heads=12),
        )[size]
        m = T5ForConditionalGeneration(T5Config(vocab_size=32128, decoder_start_token_id=0, **c)).to(dev).train()
        x, y = (
            torch.randint(1, 32128, (batch, length), device=dev),
            torch.randint(1, 32128, (batch, length // 4), device=dev),
        )
        return trained(m, lambda: m(input_ids=x, labels=y).loss)

    return make


def trained(m, loss, amp=True):
    opt = torch.optim.AdamW(m.parameters(), lr=1e-4, fused=True)

    def step():
        with torch.autocast("cuda", torch.bfloat16, enabled=amp):
            value = loss()
        value.float().backward()
        opt.step()
        opt.zero_grad()

    return step, None


def vision(name, batch, side, amp, frames=0):
    def make():
        import torchvision

        if frames:
            m = getattr(torchvision.models.video, name)(weights=None).to(dev)
            x = rnd(batch, 3, frames, side, side, dtype=torch.float32)
        else:
            module = torchvision.models.segmentation if "deeplab" in name else torchvision.models
            m = (
                getattr(module, name)(weights=None, **(dict(weights_backbone=None) if "deeplab" in name else {}))
                .to(dev)
                .train()
            )
            x = rnd(batch, 3, side, side, dtype=torch.float32)
        y = m(x[:2])
        shape = (batch, *(y["out"] if isinstance(y, dict) else y).shape[1:])
        target = torch.randint(0, shape[1], (shape[0], *shape[2:]), device=dev)

        def loss():
            out = m(x)
            return F.cross_entropy((out["out"] if isinstance(out, dict) else out).float(), target)

        return trained(m, loss, amp)

    return make


def graph_net(kind, nodes, count, width, amp=False):
    def make():
        import torch_geometric.nn as gnn

        conv = getattr(gnn, kind)
        g = torch.Generator(device=dev).manual_seed(0)
        edge = torch.randint(0, nodes, (2, count), device=dev, generator=g)

        class Net(nn.Module):
            def __init__(s):
                super().__init__()
                s.a, s.b, s.c = conv(128, width), conv(width, width), conv(width, 40)

            def forward(s, x):
                return s.c(s.b(s.a(x, edge).relu(), edge).relu(), edge)

        m = Net().to(dev)
        x, y = rnd(nodes, 128, dtype=torch.float32), torch.randint(0, 40, (nodes,), device=dev)
        return trained(m, lambda: F.cross_entropy(m(x).float(), y), amp)

    return make


def lstm_lm(layers, hidden, batch, steps):
    def make():
        class Net(nn.Module):
            def __init__(s):
                super().__init__()
                s.e, s.r, s.o = (
                    nn.Embedding(33278, hidden),
                    nn.LSTM(hidden, hidden, layers, dropout=0.2),
                    nn.Linear(hidden, 33278),
                )

            def forward(s, x):
                return s.o(s.r(s.e(x))[0])

        m = Net().to(dev)
        x, y = (
            torch.randint(0, 33278, (steps, batch), device=dev),
            torch.randint(0, 33278, (steps * batch,), device=dev),
        )
        return trained(m, lambda: F.cross_entropy(m(x).flatten(0, 1).float(), y), False)

    return make


for name, make in (
    ("t5 small 16 512", t5("small", 16, 512)),
    ("t5 base 8 512", t5("base", 8, 512)),
    ("sage 169343 1166243 256", graph_net("SAGEConv", 169343, 1166243, 256)),
    ("gcn 169343 1166243 256", graph_net("GCNConv", 169343, 1166243, 256)),
    ("gat 50000 500000 64", graph_net("GATConv", 50000, 500000, 64)),
    ("lstm 3 1024 64 70", lstm_lm(3, 1024, 64, 70)),
    ("lstm 2 650 20 35", lstm_lm(2, 650, 20, 35)),
    ("deeplab 8 257 bf16", vision("deeplabv3_resnet50", 8, 257, True)),
    ("deeplab 8 257 tf32", vision("deeplabv3_resnet50", 8, 257, False)),
    ("resnext50 96 bf16", vision("resnext50_32x4d", 96, 224, True)),
    ("resnext101 32 tf32", vision("resnext101_32x8d", 32, 224, False)),
    ("r3d_18 8 bf16", vision("r3d_18", 8, 112, True, 16)),
    ("r2plus1d_18 8 tf32", vision("r2plus1d_18", 8, 112, False, 16)),
):
    case("step", name, make)


BIG = None


def measured(family, name, make):
    global BIG
    if BIG is None:
        BIG = torch.ones(80 << 20, device=dev)  # 320 MB
    torch.manual_seed(0)
    torch.backends.cuda.matmul.allow_tf32 = family in ("tf32",)
    fn, first = make()
    for _ in range(2):
        fn()
    torch.cuda.synchronize()
    calls = 1 if family == "step" else 3 if family == "recurrent" else 5
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA], record_shapes=True) as p:
        for _ in range(calls):
            if family != "step":
                with record_function("before"):
                    BIG.sum()
                    if first is not None:
                        first.mul_(1.0)
            fn()
        torch.cuda.synchronize()
    path = os.path.join(tempfile.gettempdir(), f"kernels.{os.getpid()}.json")
    p.export_chrome_trace(path)
    events = json.load(open(path))["traceEvents"]
    os.unlink(path)
    chains = trace.ops_of_launches(events)
    layouts = {}
    for e in events:
        op = chains.get(e.get("args", {}).get("correlation")) if e.get("cat") == "kernel" else None
        if op is not None and "elementwise_kernel" in e["name"]:
            from profiles.signature import format_signature

            a = op["args"]
            layouts.setdefault(
                format_signature(trace.signature_of(e, op)),
                dict(dims=a.get("Input Dims"), strides=a.get("Input Strides"), types=a.get("Input type")),
            )
    found = defaultdict(list)
    for one in trace.works(events, without="before"):
        found[one.signature].append((one.for_us, one.kernels))
    lines = []
    for signature, each in found.items():
        us = [round(one, 3) for one, _ in each]
        line = dict(
            family=family,
            case=name,
            us=round(sum(us), 2) if family == "step" else round(median(us), 3),
            n=len(us),
            kernels=each[0][1],
            signature=signature,
        )
        if family != "step":
            line["each"] = us[:12]
        lines.append(line | layouts.get(signature, {}))
    names = defaultdict(list)
    for e in events:
        if e.get("cat") == "kernel" and e["name"] and "at::native" not in e["name"]:
            names[e["name"]].append(e["dur"])
    told = [
        [kernel, len(us), round(median(us), 3)] for kernel, us in names.items()
    ]  # of libraries: which engine was taken
    return [*lines, dict(family=family, case=name, kernels=told)] if told else lines


def main():
    out, families = sys.argv[1], sys.argv[2:]
    with open(out, "a") as file:
        file.write(
            json.dumps(
                dict(
                    gpu=torch.cuda.get_device_name(0),
                    torch=torch.__version__,
                    cudnn=torch.backends.cudnn.version(),
                    date=time.strftime("%Y-%m-%d"),
                )
            )
            + "\n"
        )
        for family, name, make in CASES:
            if families and family not in families:
                continue
            t = time.time()
            try:
                lines = measured(family, name, make)
            except Exception as error:
                lines = [dict(family=family, case=name, error=repr(error)[:300])]
                print(family, name, repr(error)[:200], flush=True)
            file.writelines(json.dumps(line) + "\n" for line in lines)
            file.flush()
            torch.cuda.empty_cache()
            if time.time() - t > 2:
                print(f"{family} {name}: {time.time() - t:.1f} s", flush=True)


if __name__ == "__main__":
    main()
