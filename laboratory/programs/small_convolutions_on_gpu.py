"""What convolutions of small networks need of memory: CIFAR, MNIST, 64 x 64 pictures, games, boards, sounds.

    python small_convolutions_on_gpu.py OUT.jsonl.gz SECONDS [--list]

A line has the convolution and the blocks that each call takes from PyTorch's cache, its outputs first. The sizes are drawn
at random, always the same ones; `--list` prints how many there are.
"""

from __future__ import annotations

import gzip
import json
import random
import sys
import time
from datetime import date

import torch

TYPES = {"f32": torch.float32, "tf32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}
KINDS = (
    ("tf32", False, 5),
    ("f32", False, 2),
    ("bf16", False, 2),
    ("f16", False, 1),
    ("bf16", True, 2),
    ("tf32", True, 1),
)
"""Types, channels last or not, and in how many of ten convolutions each comes."""
ROUNDS = 6
"""How many times the sizes are drawn."""
BATCHES = (16, 32, 50, 64, 100, 128, 200, 256, 512)


def square(batch, c, k, size, kernel, stride=1, padding=None, **more):
    padding = kernel // 2 if padding is None else padding
    return {"x": [batch, c, size, size], "w": [k, c, kernel, kernel], "stride": [stride] * 2, "padding": [padding] * 2,
            "dilation": [1, 1], "groups": 1} | more  # fmt: skip


def line(batch, c, k, length, kernel, stride=1, dilation=1):
    padding = (kernel - 1) * dilation // 2
    return {"x": [batch, c, length], "w": [k, c, kernel], "stride": [stride], "padding": [padding],
            "dilation": [dilation], "groups": 1}  # fmt: skip


def shapes(draw):
    batch = lambda *of: draw.choice(of or BATCHES)
    for widths in (
        (16, 32, 64),
        (32, 64, 128),
        (64, 128, 256, 512),
        (32, 64, 128, 256),
        (160, 320, 640),
        (64, 128, 256),
        (48, 96, 192),
    ):
        for size in (32, 28):  # stems, layers of one width, the way to the next one
            for kernel in (3, 5):
                yield square(batch(), 3 if size == 32 else 1, widths[0], size, kernel)
            for depth, width in enumerate(widths):
                for of in (size >> depth, size >> min(depth + 1, 3)):
                    for _ in range(2):
                        yield square(batch(), width, width, of, 3)
            for narrow, wide, depth in zip(widths, widths[1:], range(9), strict=False):
                yield square(batch(), narrow, wide, size >> depth, 3)
                yield square(batch(), narrow, wide, size >> depth, 3, 2)
                yield square(batch(), narrow, wide, size >> depth, 1, 2, 0)
                yield square(batch(), narrow, wide, size >> depth, 1)
    for c, k, size, kernel in (
        (1, 6, 28, 5),
        (6, 16, 14, 5),
        (1, 32, 28, 3),
        (32, 64, 26, 3),
        (1, 10, 28, 5),
        (10, 20, 12, 5),
        (3, 6, 32, 5),
        (6, 16, 14, 5),
        (3, 32, 32, 5),
    ):
        for _ in range(3):
            yield square(batch(), c, k, size, kernel, padding=0)
    for c, k, size in (
        (3, 64, 64),
        (64, 128, 32),
        (128, 256, 16),
        (256, 512, 8),
        (3, 32, 64),
        (32, 64, 32),
        (64, 128, 16),
        (3, 64, 128),
        (64, 64, 64),
    ):
        for _ in range(2):
            yield square(batch(), c, k, size, 4, 2, 1)
            yield square(batch(), k, c, size // 2, 4, 2, 1, w=[k, c, 4, 4], transposed=True, more=[0, 0])
            yield square(batch(8, 16, 32, 64), k, k, size, 3)
    for c, k, size, kernel, stride in (
        (4, 32, 84, 8, 4),
        (32, 64, 20, 4, 2),
        (64, 64, 9, 3, 1),
        (3, 16, 64, 3, 1),
        (16, 32, 32, 3, 1),
        (4, 16, 84, 8, 4),
        (16, 32, 20, 4, 2),
    ):
        for _ in range(3):
            yield square(batch(1, 8, 32, 128, 256, 1024), c, k, size, kernel, stride, 0)
    for size, planes in ((19, 17), (8, 119), (9, 4), (15, 3)):
        for width in (64, 128, 192, 256):
            yield square(batch(64, 256, 1024, 2048), planes, width, size, 3)
            for _ in range(2):
                yield square(batch(64, 256, 1024, 2048), width, width, size, 3)
            yield square(batch(64, 256, 1024), width, draw.choice((1, 2, 32, 73)), size, 1)
    for c, k, size in (
        (1, 32, 128),
        (3, 32, 128),
        (32, 32, 128),
        (32, 64, 64),
        (64, 64, 64),
        (64, 128, 32),
        (128, 128, 32),
        (256, 256, 16),
        (256, 128, 32),
        (128, 64, 64),
        (96, 32, 128),
        (64, 1, 128),
        (32, 3, 128),
    ):
        for _ in range(2):
            yield square(batch(2, 4, 8, 16, 32), c, k, size, 3)
            yield square(batch(2, 4, 8, 16, 32), 2 * k, k, size, draw.choice((1, 3)))
    for c, k, length in (
        (1, 32, 16000),
        (32, 32, 16000),
        (32, 64, 8000),
        (64, 64, 4000),
        (64, 128, 2000),
        (128, 128, 1000),
        (256, 256, 500),
        (512, 512, 250),
        (80, 512, 300),
        (80, 256, 800),
        (1, 64, 32000),
    ):
        for kernel, stride in ((3, 1), (5, 1), (7, 1), (8, 4), (4, 2)):
            yield line(batch(4, 8, 16, 32, 64), c, k, length, kernel, stride)
        yield line(batch(4, 8, 16, 32), k, k, length, 3, 1, draw.choice((2, 4, 8)))


def cases():
    draw = random.Random(47)
    names, weights = [(kind, last) for kind, last, _ in KINDS], [share for *_, share in KINDS]
    for shape in (shape for _ in range(ROUNDS) for shape in shapes(draw)):
        for kind, last in dict.fromkeys(draw.choices(names, weights, k=2)):
            if not last or len(shape["x"]) == 4:
                yield {"of": "small"} | shape | {"kind": kind, "last": last}


def tensor(shape, kind, last):
    x = torch.randn(shape, device="cuda", dtype=TYPES[kind])
    return x.to(memory_format=torch.channels_last) if last else x


def blocks(call):
    torch.cuda.memory._record_memory_history(context=None)
    out = call()
    history = torch.cuda.memory._snapshot()["device_traces"][0]
    torch.cuda.memory._record_memory_history(enabled=None)
    del out
    return [event["size"] for event in history if event["action"] == "alloc"]


def measured(one):
    torch.backends.cudnn.allow_tf32 = one["kind"] == "tf32"
    x, w = (tensor(one[name], one["kind"], one["last"]) for name in ("x", "w"))
    how = (
        one["stride"],
        one["padding"],
        one["dilation"],
        one.get("transposed", False),
        one.get("more", [0] * (x.dim() - 2)),
        1,
    )
    forward = lambda: torch.ops.aten.convolution(x, w, None, *how)
    y = torch.randn_like(forward())
    back = lambda *mask: lambda: torch.ops.aten.convolution_backward(y, x, w, None, *how, mask)
    return {
        "fwd": blocks(forward),
        "dgrad": blocks(back(True, False, False)),
        "wgrad": blocks(back(False, True, False)),
    }


def main():
    if "--list" in sys.argv:
        print(sum(1 for _ in cases()))
        return
    end = time.time() + float(sys.argv[2])
    with gzip.open(sys.argv[1], "wt") as file:
        about = {
            "gpu": torch.cuda.get_device_name(0),
            "torch": torch.__version__,
            "cudnn": torch.backends.cudnn.version(),
        }
        file.write(json.dumps(about | {"date": str(date.today())}) + "\n")
        for number, one in enumerate(cases()):
            if time.time() > end:
                print(f"no time after {number}")
                return
            file.write(json.dumps(one | {"blocks": measured(one)}, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
