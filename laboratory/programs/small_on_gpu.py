"""Kernels of library calls at sizes that nobody has measured: products of few rows, groups, recurrent networks, small
kernels, lines and wide filters.

    python small_on_gpu.py OUT.jsonl SECONDS [FAMILY ...]"""

import json
import sys
import time
from collections import defaultdict

import torch
from torch import nn
from torch.nn import functional as F

import sessions

BEGIN = time.time()
DEV = "cuda"
TYPES = {"f32": torch.float32, "tf32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16}
FAMILIES = defaultdict(list)


def case(family, name, make):
    FAMILIES[family].append((name, make))


def tensor(*shape, kind="f32"):
    return torch.randn(shape, device=DEV).to(TYPES[kind])


def product(rows, inner, outer, kind):
    """An expert's layer: forward, and both gradients."""

    def make():
        x, w, g = tensor(rows, inner, kind=kind), tensor(outer, inner, kind=kind), tensor(rows, outer, kind=kind)

        def call():
            torch.backends.cuda.matmul.allow_tf32 = kind == "tf32"
            x @ w.t(), g @ w, g.t() @ x

        return call

    return make


ROWS = (1, 3, 8, 16, 21, 32, 40, 64, 72, 96, 128, 150, 192, 256, 320, 448)
LAYERS = ((768, 3072), (1024, 512), (2048, 1408), (4096, 14336), (3072, 1024), (5120, 1536), (512, 2048), (1024, 3584))
for number, rows in enumerate(ROWS):
    for at, (inner, outer) in enumerate(LAYERS):
        kinds = ("bf16", "f32", "tf32", "f16")
        kind = kinds[(number + at) % 4]
        case("rows", f"{rows} {inner} {outer} {kind}", product(rows, inner, outer, kind))
        if (number + at) % 2 == 0:
            case("rows", f"{rows} {outer} {inner} bf16", product(rows, outer, inner, "bf16"))


def grouped(groups, rows, inner, outer, even):
    def make():
        torch.manual_seed(groups * rows)
        if even:
            sizes = torch.full((groups,), rows // groups)
        else:
            sizes = torch.bincount(
                torch.multinomial(torch.rand(groups) + 0.2, rows, replacement=True), minlength=groups
            )
        ends = sizes.cumsum(0).to(DEV, torch.int32)
        x, w = (
            tensor(rows, inner, kind="bf16").requires_grad_(),
            tensor(groups, inner, outer, kind="bf16").requires_grad_(),
        )
        g = tensor(rows, outer, kind="bf16")
        return lambda: torch.autograd.grad(torch._grouped_mm(x, w, offs=ends), (x, w), g)

    return make


for number, (groups, rows, inner, outer) in enumerate((
    (8, 1024, 2048, 1408), (64, 2048, 1024, 512), (128, 4096, 2048, 768), (16, 512, 4096, 1536), (8, 8192, 4096, 14336), (64, 16384, 2048, 1408), (32, 640, 2048, 1024), (8, 128, 4096, 14336), (128, 16384, 2048, 768), (16, 4096, 768, 3072),
)):  # fmt: skip
    for even in (True, False):
        case("grouped", f"{groups} {rows} {inner} {outer} {even}", grouped(groups, rows, inner, outer, even))


def recurrent(mode, layers, hidden, batch, steps, kind, both, inputs):
    def make():
        torch.backends.cudnn.allow_tf32 = True
        net = getattr(nn, mode)(inputs, hidden, layers, bidirectional=both, batch_first=True).to(DEV, TYPES[kind])
        net.flatten_parameters()
        x = tensor(batch, steps, inputs, kind=kind).requires_grad_()
        g = tensor(batch, steps, hidden * (2 if both else 1), kind=kind)
        leaves = [x, *net.parameters()]

        def call():
            torch.backends.cudnn.allow_tf32 = kind == "tf32"
            torch.autograd.grad(net(x)[0], leaves, g)

        return call

    return make


KINDS = ("tf32", "f16", "bf16", "f32")
for number, (layers, hidden, batch, steps, both) in enumerate((
    (1, 128, 32, 100, False), (2, 256, 64, 60, False), (1, 512, 16, 120, True), (2, 512, 128, 40, False), (1, 1024, 32, 50, False), (3, 384, 24, 60, True), (1, 64, 256, 80, False), (2, 1024, 64, 30, True),
    (1, 1536, 8, 40, False), (4, 320, 48, 50, False), (1, 2048, 64, 25, False), (2, 200, 20, 35, False), (2, 128, 8, 150, True), (1, 768, 96, 40, False), (1, 256, 1, 100, False), (2, 640, 16, 60, True),
)):  # fmt: skip
    for at, mode in enumerate(("LSTM", "GRU")):
        for kind in (KINDS[(number + at) % 4], KINDS[(number + at + 1) % 4]):
            inputs = hidden if number % 2 else max(hidden // 2, 40)
            case("recurrent", f"{mode} {layers} {hidden} {batch} {steps} {kind} {both}", recurrent(mode, layers, hidden, batch, steps, kind, both, inputs))  # fmt: skip


def small(call, *shapes, kind="f32"):
    def make():
        given = [tensor(*shape, kind=kind) for shape in shapes]
        return lambda: call(*given)

    return make


SMALL = {
    "add": lambda x: x + x, "gelu": F.gelu, "mul scalar": lambda x: x * 2.0, "cast": lambda x: x.to(torch.float16), "exp": torch.exp, "clone": torch.clone,
    "where": lambda x: torch.where(x > 0, x, 0.0), "sum": torch.sum, "sum last": lambda x: x.sum(-1), "mean first": lambda x: x.mean(0), "softmax": lambda x: x.softmax(-1),
    "layer norm": lambda x: F.layer_norm(x, x.shape[-1:]), "rms norm": lambda x: F.rms_norm(x, x.shape[-1:]), "max": lambda x: x.max(-1), "argmax": lambda x: x.argmax(-1),
    "cat": lambda x: torch.cat((x, x), -1), "turn": lambda x: x.t().contiguous(), "cumsum": lambda x: x.cumsum(-1), "topk": lambda x: x.topk(2, -1), "sort": lambda x: x.sort(-1),
    "index": lambda x: x[:, ::3].contiguous(), "norm": lambda x: torch.linalg.vector_norm(x), "dropout": lambda x: F.dropout(x, 0.1), "tril": torch.tril, "zeros": torch.zeros_like,
}  # fmt: skip
for number, (name, call) in enumerate(SMALL.items()):
    for at, shape in enumerate(((1, 768), (8, 64), (16, 1024), (128, 512), (64, 4096), (512, 768))):
        kind = ("f32", "bf16")[(number + at) % 2]
        case("small", f"{name} {shape} {kind}", small(call, shape, kind=kind))


def foreach(count, width):
    def make():
        weights, grads = ([tensor(width) for _ in range(count)] for _ in range(2))
        return lambda: (
            torch._foreach_add_(weights, grads, alpha=-0.1),
            torch._foreach_norm(grads),
            torch._foreach_mul_(grads, 0.9),
        )

    return make


for count, width in ((4, 64), (20, 768), (100, 300), (12, 65536), (60, 20000)):
    case("small", f"foreach {count} {width}", foreach(count, width))


def convolution(shape, outputs, taps, stride, dilation, groups, kind, dims, last=False):
    def make():
        torch.backends.cudnn.allow_tf32 = True
        net = (nn.Conv1d, nn.Conv2d)[dims - 1](shape[1], outputs, taps, stride, dilation * (taps // 2), dilation, groups, bias=False).to(DEV, TYPES[kind])  # fmt: skip
        x = tensor(*shape, kind=kind)
        if last:
            net, x = net.to(memory_format=torch.channels_last), x.to(memory_format=torch.channels_last)
        x = x.requires_grad_()
        g = torch.randn_like(net(x))

        def call():
            torch.backends.cudnn.allow_tf32 = kind == "tf32"
            torch.autograd.grad(net(x), (x, net.weight), g)

        return call

    return make


LINES = (
    ((16, 64, 8000), 64, 7, 1, 1), ((8, 128, 4000), 128, 9, 1, 1), ((32, 64, 4096), 64, 15, 1, 1), ((16, 32, 16000), 32, 31, 1, 1), ((4, 256, 2000), 256, 11, 1, 3), ((24, 80, 1500), 160, 7, 2, 1),
    ((12, 128, 3000), 256, 5, 1, 4), ((8, 512, 600), 512, 7, 1, 1), ((16, 1, 16000), 64, 25, 4, 1), ((16, 1, 16000), 128, 80, 4, 1), ((6, 256, 6000), 128, 7, 1, 9), ((20, 48, 2500), 48, 3, 1, 16),
)  # fmt: skip
for number, (shape, outputs, taps, stride, dilation) in enumerate(LINES):
    for kind in ("f32", ("tf32", "bf16", "f16")[number % 3]):
        case(
            "lines",
            f"{shape} {outputs} {taps} {stride} {dilation} {kind}",
            convolution(shape, outputs, taps, stride, dilation, 1, kind, 1),
        )
for number, (channels, side, batch) in enumerate(
    ((96, 56, 16), (192, 28, 32), (384, 14, 48), (768, 7, 64), (128, 48, 12), (256, 24, 24))
):
    for kind in ("bf16", "f16"):
        for last in (False, True):
            case(
                "wide",
                f"{channels} {side} {batch} {kind} {last}",
                convolution((batch, channels, side, side), channels, 7, 1, 1, channels, kind, 2, last),
            )


def in_turn(families):
    """A case of each family, then the next of each, in proportion."""
    lists = {name: found for name, found in FAMILIES.items() if not families or name in families}
    places = [((at + 0.5) / len(found), name, one) for name, found in lists.items() for at, one in enumerate(found)]
    return [(f"{family}: {name}", make) for _, family, (name, make) in sorted(places, key=lambda one: one[0])]


def main():
    out, seconds, families = sys.argv[1], float(sys.argv[2]), sys.argv[3:]
    much = torch.ones(80 << 20, device=DEV)
    cases = in_turn(families)
    print(len(cases), "cases", flush=True)
    with open(out, "w") as file:
        for first in range(0, len(cases), 40):
            if time.time() - BEGIN > seconds:
                print("out of time at", first, "of", len(cases), flush=True)
                break
            calls, lines = [], []
            for name, make in cases[first : first + 40]:
                try:
                    call = make()
                    call(), call()
                    torch.cuda.synchronize()
                    calls.append((name, call))
                except Exception as error:
                    lines.append({"case": name, "error": repr(error)[:300]})
            lines += sessions.session(calls, 5, much)
            file.writelines(json.dumps(line) + "\n" for line in lines)
            file.flush()
            del calls
            print(f"{time.time() - BEGIN:.0f} s: {first + 40}", flush=True)


if __name__ == "__main__":
    main()
