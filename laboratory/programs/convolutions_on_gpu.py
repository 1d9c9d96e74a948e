"""Convolutions and recurrent networks of one GPU: each direction of each shape called by itself, with the kernels that
cuDNN takes, how long they take together, and the blocks that the call takes of PyTorch's allocator.

    python convolutions_on_gpu.py OUT.jsonl [--part I/N] [--seconds S] [--only recurrent|convolution|benchmark]

Shapes are those of torchvision's networks and of others that people train, at sizes and batches drawn at random (the
same each time). A line of a convolution: its shape and, by direction, `us` (kernels' durations added up, median of four),
`span` (from the first kernel's begin to the last one's end), `kernels` ([name, how many, us]), `blocks` (bytes asked
for, in order). Before each call more than the L2 cache is read and the first operand is written."""

import argparse
import json
import os
import random
import time
from collections import defaultdict
from statistics import median

import torch
from torch import nn
from torch.profiler import ProfilerActivity, profile

DEV = "cuda"
TYPES = {"f32": torch.float32, "tf32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}
KINDS = (
    *((("f16", True),) * 5), *((("f16", False),) * 5), *((("bf16", True),) * 3), *((("bf16", False),) * 2),
    *((("tf32", False),) * 6), *((("tf32", True),) * 4), *((("f32", False),) * 6), ("f32", True),
)  # fmt: skip
MOST_NBYTES, MOST_FLOPS = 3 << 30, {"f32": 5e11, "tf32": 2e12, "f16": 3e12, "bf16": 3e12}
CALLS = 4

# ---- shapes ----
NETWORKS = (
    ("resnet18", 128, 224), ("resnet18", 48, 160), ("resnet50", 64, 224), ("resnet50", 176, 192), ("resnet50", 24, 320), ("wide_resnet50_2", 64, 224),
    ("wide_resnet50_2", 40, 256), ("wide_resnet101_2", 128, 176), ("resnext50_32x4d", 64, 224), ("resnext50_32x4d", 128, 192), ("resnext101_32x8d", 48, 224), ("regnet_y_8gf", 48, 224),
    ("regnet_y_8gf", 96, 192), ("regnet_y_1_6gf", 160, 224), ("regnet_x_3_2gf", 96, 224), ("vgg11", 64, 224), ("vgg16", 24, 224), ("vgg16", 64, 192), ("vgg13_bn", 96, 160),
    ("alexnet", 256, 224), ("densenet121", 64, 224), ("googlenet", 128, 224), ("inception_v3", 64, 299), ("squeezenet1_1", 128, 224),
    ("mobilenet_v2", 128, 224), ("mobilenet_v3_large", 192, 224), ("shufflenet_v2_x1_0", 128, 224), ("shufflenet_v2_x1_0", 256, 192),
    ("shufflenet_v2_x2_0", 96, 224), ("mnasnet1_0", 96, 224), ("efficientnet_b0", 128, 224), ("efficientnet_b3", 64, 300), ("efficientnet_v2_s", 64, 256),
    ("convnext_tiny", 64, 224), ("segmentation.deeplabv3_resnet50", 4, 513), ("segmentation.deeplabv3_resnet101", 6, 321), ("segmentation.deeplabv3_resnet101", 12, 449),
    ("segmentation.fcn_resnet50", 8, 400), ("video.r3d_18", 8, 112), ("video.mc3_18", 12, 112), ("video.r2plus1d_18", 6, 112),
)  # fmt: skip
SAMPLE = 14
"""Shapes of a network that are taken, at most."""


def of_network(name, batch, side):
    import torchvision

    make = torchvision.models
    for part in name.split("."):
        make = getattr(make, part)
    options = {"init_weights": False, "aux_logits": False} if name in ("googlenet", "inception_v3") else {}
    if "segmentation" in name:
        options = {"weights_backbone": None}
    found = {}
    with torch.device("cpu" if "regnet" in name else "meta"):  # a regnet's widths are computed by tensors
        net = make(**options).to("meta")
    with torch.device("meta"):

        def seen(module, inputs, _):
            x = tuple(inputs[0].shape)
            key = x, tuple(module.weight.shape), module.stride, module.padding, module.dilation, module.groups
            found[key] = dict(zip(("x", "w", "stride", "padding", "dilation", "groups"), key, strict=True))

        for module in net.modules():
            if isinstance(module, nn.Conv2d | nn.Conv3d):
                module.register_forward_hook(seen)
        net(torch.empty(batch, 3, *((16,) if "video" in name else ()), side, side))
    return list(found.values())


def plain(batch, c, side, k, taps, stride=1, padding=None, dilation=1, groups=1, transposed=False, spatial=2, more=0):
    """`side` and `taps`: a number for all dimensions, or a tuple."""
    sides, taps, stride, dilation = (
        one if isinstance(one, tuple) else (one,) * spatial for one in (side, taps, stride, dilation)
    )
    pad = tuple(d * (t - 1) // 2 for d, t in zip(dilation, taps, strict=True)) if padding is None else padding
    pad = pad if isinstance(pad, tuple) else (pad,) * spatial
    w = (c, k // groups, *taps) if transposed else (k, c // groups, *taps)
    out = {"x": (batch, c, *sides), "w": w, "stride": stride, "padding": pad, "dilation": dilation, "groups": groups}
    return out | ({"transposed": True, "more": (more,) * spatial} if transposed else {})


def others(draw):
    """Shapes of generators, segmentation, detectors, speech and volumes."""
    b = lambda *of: draw.choice(of)  # noqa: E731
    for c, k, side in (  # diffusion
        (4, 320, 64), (320, 320, 64), (640, 320, 64), (960, 320, 64), (320, 640, 32), (640, 640, 32), (1280, 640, 32), (1920, 640, 32), (640, 1280, 16),
        (1280, 1280, 16), (2560, 1280, 16), (1280, 1280, 8), (2560, 1280, 8), (320, 4, 64), (128, 128, 64), (128, 256, 32), (256, 256, 32), (512, 512, 16),
        (512, 256, 16), (128, 3, 64), (3, 128, 64), (192, 192, 32), (384, 384, 16), (96, 96, 48),
    ):  # fmt: skip
        yield plain(b(4, 8, 16, 32, 64), c, side, k, 3)
        yield plain(b(4, 8, 16, 32), c, side, k, 1)
    for c, side in ((320, 64), (640, 32), (128, 64), (256, 32)):
        yield plain(b(8, 16, 32), c, side, c, 3, 2)
    for c, k, side in (
        (64, 64, 48),
        (64, 256, 48),
        (64, 256, 96),
        (64, 3, 192),
        (3, 64, 48),
        (64, 64, 96),
        (256, 256, 48),
        (128, 512, 40),
        (96, 32, 64),
        (160, 32, 64),
    ):
        yield plain(b(2, 8, 16, 24), c, side, k, 3)  # super-resolution
    for c, k, side in (
        (1, 64, 256),
        (64, 64, 256),
        (64, 128, 128),
        (128, 128, 128),
        (256, 256, 64),
        (512, 512, 32),
        (1024, 1024, 16),
        (1024, 512, 32),
        (512, 256, 64),
        (128, 64, 256),
        (64, 2, 256),
        (3, 32, 320),
    ):
        yield plain(b(2, 4, 8, 16), c, side, k, 3)  # UNet
    for c, k, side in ((1024, 512, 16), (512, 256, 32), (256, 128, 64), (128, 64, 96)):
        yield plain(b(2, 4, 8, 16), c, side, k, 2, 2, 0, transposed=True)
    for c, k, side in ((3, 32, 640), (32, 64, 320), (64, 128, 160), (128, 256, 80), (256, 512, 40), (512, 1024, 20)):
        yield plain(b(4, 8, 16, 32), c, side, k, 3, 2)  # detectors
        yield plain(b(4, 8, 16, 32), k, side // 2, k, 3)
        yield plain(b(4, 8, 16, 32), k, side // 2, k // 2, 1)
    for c, k, side in (
        (100, 1024, 1),
        (1024, 512, 4),
        (512, 256, 8),
        (256, 128, 16),
        (128, 64, 16),
        (128, 64, 32),
        (64, 3, 32),
        (128, 3, 32),
        (96, 1, 16),
    ):
        one = side == 1
        yield plain(b(64, 128, 256), c, side, k, 4, 1 if one else 2, 0 if one else 1, transposed=True)
    for c, k, side in (
        (3, 64, 64),
        (64, 128, 32),
        (128, 256, 16),
        (256, 512, 8),
        (512, 1, 4),
        (1, 64, 32),
        (3, 128, 128),
        (128, 128, 64),
        (128, 256, 32),
        (96, 192, 32),
    ):
        yield plain(b(32, 64, 128, 256), c, side, k, 4, 1 if side == 4 else 2, 0 if side == 4 else 1)
    for c, k, side in ((64, 64, 32), (128, 128, 32), (256, 128, 16), (128, 256, 32), (64, 128, 64)):
        yield plain(b(16, 64, 128), c, side, k, 3)  # codes
        yield plain(b(16, 64), c, side, k, 4, 2, 1, transposed=True)
    for groups, c, k, side in (
        (8, 512, 512, 8),
        (8, 512, 512, 16),
        (16, 512, 512, 4),
        (16, 256, 256, 32),
        (4, 512, 256, 32),
        (8, 256, 128, 32),
        (16, 128, 64, 64),
        (8, 128, 128, 64),
        (12, 64, 64, 64),
        (32, 512, 512, 8),
        (16, 512, 3, 16),
    ):
        yield plain(1, groups * c, side, groups * k, 1 if k == 3 else 3, groups=groups)  # weights of each image
        if k > 3:
            yield plain(1, groups * c, side, groups * k, 3, 2, 0, groups=groups, transposed=True)
    for c, k, side in ((512, 512, 8), (256, 512, 16), (128, 256, 32), (64, 128, 64), (513, 512, 4)):
        yield plain(b(8, 16, 32), c, side, k, 3)
        yield plain(b(8, 16, 32), c, side + 1, k, 3, 2, 0)
        yield plain(b(8, 16), c, side, k, 1)
    for side, c, k, taps in (
        (28, 1, 32, 3),
        (26, 32, 64, 3),
        (28, 1, 6, 5),
        (14, 6, 16, 5),
        (28, 1, 10, 5),
        (32, 3, 64, 3),
        (32, 3, 6, 5),
        (32, 16, 16, 3),
        (32, 64, 64, 3),
        (16, 128, 128, 3),
        (8, 256, 256, 3),
        (4, 512, 512, 3),
        (32, 160, 160, 3),
        (16, 320, 320, 3),
        (8, 640, 640, 3),
        (32, 256, 256, 9),
    ):
        yield plain(b(64, 128, 256, 512), c, side, k, taps)  # small images
    for side, k, taps in (
        (224, 768, 16),
        (224, 1024, 14),
        (256, 384, 8),
        (224, 96, 4),
        (224, 768, 32),
        (64, 192, 2),
        (384, 1152, 16),
        (32, 512, 4),
    ):
        yield plain(b(16, 32, 64, 128), 3 if side > 32 else 4, side, k, taps, taps, 0)  # patches
    for c, side, far in (
        (2048, 33, 6),
        (2048, 49, 12),
        (2048, 33, 12),
        (2048, 65, 24),
        (2048, 49, 36),
        (512, 49, 2),
        (512, 65, 4),
        (256, 65, 2),
        (320, 33, 12),
        (1280, 33, 18),
        (128, 64, 3),
        (64, 96, 8),
    ):
        yield plain(b(2, 4, 8, 12), c, side, 256 if c > 1000 else c, 3, dilation=far)  # dilated
    yield from (
        plain(b(8, 16, 32), 1, (161, 400), 32, (41, 11), (2, 2)),
        plain(b(8, 16, 32), 32, (81, 200), 32, (21, 11), (2, 1)),
    )  # speech
    yield from (
        plain(b(8, 16, 32), 1, (80, 600), 256, 3, 2, 0),
        plain(b(8, 16, 32), 256, (39, 299), 256, 3, 2, 0),
        plain(b(8, 32), 1, (128, 512), 64, 3),
    )
    line = lambda *a, **k: plain(*a, spatial=1, **k)  # noqa: E731
    for c, k, length, taps, stride, far in (
        (1, 512, 48000, 10, 5, 1), (512, 512, 9599, 3, 2, 1), (512, 512, 2399, 3, 2, 1), (512, 512, 599, 2, 2, 1), (80, 512, 3000, 3, 1, 1), (80, 384, 3000, 3, 1, 1), (512, 512, 3000, 3, 2, 1),
        (1024, 1024, 3000, 3, 2, 1), (80, 512, 40, 7, 1, 1), (256, 256, 320, 3, 1, 1), (256, 256, 320, 7, 1, 3), (128, 128, 640, 3, 1, 5), (128, 128, 640, 11, 1, 1), (64, 64, 2560, 7, 1, 5), (64, 64, 2560, 3, 1, 1),
        (32, 32, 5120, 11, 1, 3), (32, 1, 8192, 7, 1, 1), (1, 16, 8192, 15, 1, 1), (128, 256, 4000, 2, 1, 1), (64, 128, 8000, 3, 1, 16), (64, 128, 8000, 3, 1, 64), (512, 512, 500, 1, 1, 1), (256, 1024, 400, 1, 1, 1),
        (1024, 256, 400, 1, 1, 1), (144, 576, 300, 1, 1, 1), (768, 3072, 256, 1, 1, 1), (64, 64, 1024, 5, 1, 1), (1, 64, 4096, 7, 2, 1), (256, 512, 200, 5, 1, 1), (1500, 512, 200, 1, 1, 1), (512, 512, 300, 3, 1, 3),
    ):  # fmt: skip
        yield line(b(4, 8, 16, 32), c, length, k, taps, stride, dilation=far)
    for c, length, taps, groups in (
        (768, 199, 128, 16), (768, 499, 128, 16), (1024, 249, 128, 16), (512, 300, 64, 8), (768, 249, 95, 16), (1024, 149, 19, 16), (768, 300, 31, 768), (256, 400, 31, 256), (512, 200, 15, 512), (144, 600, 32, 144),
        (1536, 2048, 4, 1536), (5120, 1024, 4, 5120), (64, 1024, 41, 4), (256, 512, 41, 16), (1024, 256, 41, 64), (512, 400, 3, 32), (256, 400, 5, 8),
    ):  # fmt: skip
        yield line(b(4, 8, 16), c, length, c, taps, padding=taps // 2, groups=groups)
    for c, k, length, taps, stride in (
        (512, 256, 32, 16, 8),
        (256, 128, 256, 16, 8),
        (128, 64, 2048, 4, 2),
        (64, 32, 4096, 4, 2),
        (768, 384, 100, 10, 5),
        (512, 512, 250, 8, 4),
    ):
        yield line(b(4, 8, 16), c, length, k, taps, stride, (taps - stride) // 2, transposed=True)
    volume = lambda *a, **k: plain(*a, spatial=3, **k)  # noqa: E731
    for c, k, side, taps, stride in (
        (1, 32, 64, 3, 1), (1, 16, 128, 3, 1), (32, 32, 64, 3, 1), (32, 64, 64, 3, 2), (64, 64, 32, 3, 1), (64, 128, 32, 3, 2), (128, 128, 16, 3, 1), (128, 256, 16, 3, 2), (256, 256, 8, 3, 1), (320, 320, 8, 3, 1), (320, 320, 4, 3, 1), (256, 128, 16, 3, 1), (64, 32, 64, 3, 1),
        (32, 3, 64, 1, 1), (16, 16, 96, 3, 1), (4, 48, 80, 3, 1), (48, 48, 40, 5, 1), (128, 64, 28, (1, 3, 3), 1), (64, 64, 28, (3, 1, 1), 1), (3, 96, 64, (3, 7, 7), 2), (3, 768, 64, (2, 16, 16), (2, 16, 16)), (512, 512, 16, 3, 1),
    ):  # fmt: skip
        yield volume(b(1, 2, 4), c, side, k, taps, stride)
    for c, k, side in ((320, 256, 6), (256, 128, 12), (128, 64, 24), (64, 32, 40)):
        yield volume(b(1, 2, 4), c, side, k, 2, 2, 0, transposed=True)
    for _ in range(160):  # none of anybody's
        size = lambda: draw.choice((8, 16, 24, 32, 48, 64, 96, 128, 160, 192, 256, 320, 384, 512, 640, 768, 1024))  # noqa: E731
        taps, side = (
            draw.choice((1, 1, 3, 3, 3, 5, 7)),
            draw.choice((7, 8, 12, 14, 16, 20, 25, 28, 32, 40, 56, 64, 80, 112, 128)),
        )
        yield plain(b(1, 2, 4, 8, 16, 32, 64, 128), size(), side, size(), taps, draw.choice((1, 1, 1, 2)))


def cases():
    draw = random.Random(7)
    shapes = []
    for network in NETWORKS:
        found = of_network(*network)
        shapes += [(network[0], one) for one in draw.sample(found, min(SAMPLE, len(found)))]
    shapes += [("", one) for one in others(draw)]
    out = []
    for name, shape in shapes:
        drawn = [KINDS[at] for at in draw.sample(range(len(KINDS)), 8)]
        several = dict.fromkeys((kind, last and len(shape["x"]) > 3) for kind, last in drawn)
        out += [{"of": name, "kind": kind, "last": last} | shape for kind, last in list(several)[:3]]
    # All f32 kernels of 3x3 filters without stride: which of them go through transforms is not known.
    for c, k in ((64, 64), (64, 128), (128, 128), (128, 256), (256, 256), (256, 512), (512, 512), (96, 96), (32, 64)):
        for side in (7, 14, 28, 30, 31, 32, 56, 112, 224):
            for batch in (4, 16, 48):
                out.append({"of": "grid", "kind": "f32", "last": False} | plain(batch, c, side, k, 3))
    out = [one for one in out if fits(one)]
    draw.shuffle(out)
    return out


def fits(one):
    n, taps = one["x"][0], 1
    for tap in one["w"][2:]:
        taps *= tap
    pixels = 1
    for side, stride in zip(one["x"][2:], one["stride"], strict=True):
        pixels *= side * stride if one.get("transposed") else max(side // stride, 1)
    k = one["w"][1] * one["groups"] if one.get("transposed") else one["w"][0]
    c = one["x"][1]
    inner = one["x"][0] * c * torch.Size(one["x"][2:]).numel()
    flops = (
        2.0
        * n
        * pixels
        * k
        * c
        // one["groups"]
        * taps
        / (torch.Size(one["stride"]).numel() if one.get("transposed") else 1)
    )
    return 4 * (inner + n * pixels * k) < MOST_NBYTES and flops < MOST_FLOPS[one["kind"]]


# ---- measuring ----
def tensor(shape, kind, last):
    x = torch.randn(shape, device=DEV, dtype=TYPES[kind])
    formats = {4: torch.channels_last, 5: torch.channels_last_3d}
    return x.to(memory_format=formats[x.dim()]) if last and x.dim() in formats else x


def precise(kind):
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = kind == "tf32"


def calls_of(one):
    """Returns by direction: the call, its first operand."""
    precise(one["kind"])
    x, w = (tensor(one[key], one["kind"], one["last"]) for key in ("x", "w"))
    transposed, more = one.get("transposed", False), one.get("more", (0,) * (len(one["x"]) - 2))
    how = one["stride"], one["padding"], one["dilation"], transposed, more, one["groups"]
    y = torch.ops.aten.convolution(x, w, None, *how)
    y = torch.randn_like(y)

    def back(*mask):
        return lambda: torch.ops.aten.convolution_backward(y, x, w, None, *how, mask)

    forward = lambda: torch.ops.aten.convolution(x, w, None, *how)  # noqa: E731
    return {"fwd": (forward, x), "dgrad": (back(True, False, False), y), "wgrad": (back(False, True, False), y)}, y


def recurrent_calls(one):
    precise(one["kind"])
    net = getattr(nn, one["mode"])(
        one["inputs"],
        one["hidden"],
        one["layers"],
        bidirectional=one["both"],
        batch_first=one["first"],
        dropout=one["dropout"],
    )
    net = net.to(DEV, TYPES[one["kind"]]).train()
    size = (one["batch"], one["steps"]) if one["first"] else (one["steps"], one["batch"])
    x = tensor((*size, one["inputs"]), one["kind"], False).requires_grad_(one["layers"] > 0)
    y = net(x)[0]
    g = torch.randn_like(y)
    wanted = (x, *net.parameters())
    return {
        "fwd": (lambda: net(x)[0], g),
        "bwd": (lambda: torch.autograd.grad(y, wanted, g, retain_graph=True), g),
    }, y


RECURRENT = [
    {"mode": mode, "layers": layers, "hidden": hidden, "batch": batch, "steps": steps, "kind": kind, "both": both, "inputs": inputs, "dropout": dropout, "first": first}
    for mode, layers, hidden, batch, steps, kind, both, inputs, dropout, first in (
        ("GRU", 4, 640, 80, 100, "f32", False, 640, 0.1, True), ("GRU", 4, 640, 80, 100, "tf32", False, 640, 0.0, False), ("GRU", 2, 768, 64, 100, "f32", False, 256, 0.1, True),
        ("GRU", 3, 1024, 48, 60, "f32", False, 512, 0.2, False), ("GRU", 1, 768, 96, 100, "f32", False, 768, 0.0, True), ("GRU", 1, 256, 32, 50, "f32", False, 128, 0.0, True),
        ("GRU", 2, 512, 128, 80, "f16", False, 512, 0.1, True), ("GRU", 3, 800, 32, 100, "f32", True, 800, 0.0, False), ("GRU", 2, 128, 256, 60, "tf32", True, 64, 0.0, True), ("GRU", 4, 512, 64, 40, "bf16", False, 512, 0.1, False),
        ("LSTM", 2, 650, 32, 35, "f32", False, 650, 0.5, False), ("LSTM", 2, 650, 32, 35, "tf32", False, 650, 0.5, False), ("LSTM", 2, 200, 20, 35, "tf32", False, 200, 0.2, False), ("LSTM", 3, 1150, 40, 70, "f32", False, 400, 0.0, False),
        ("LSTM", 1, 256, 64, 100, "f32", False, 128, 0.0, True), ("LSTM", 1, 256, 64, 100, "f32", True, 128, 0.0, True), ("LSTM", 2, 512, 64, 50, "f32", True, 300, 0.3, True), ("LSTM", 3, 768, 48, 80, "f32", False, 768, 0.1, True),
        ("LSTM", 4, 1024, 32, 60, "tf32", False, 1024, 0.1, False), ("LSTM", 3, 768, 48, 80, "tf32", False, 768, 0.1, True), ("LSTM", 2, 1024, 128, 40, "f16", False, 1024, 0.0, True), ("LSTM", 3, 640, 24, 120, "f16", True, 320, 0.0, False),
        ("LSTM", 2, 384, 96, 64, "bf16", True, 384, 0.1, True), ("LSTM", 1, 1500, 20, 35, "f32", False, 1500, 0.0, False), ("LSTM", 2, 1500, 32, 40, "f32", False, 1500, 0.6, False), ("LSTM", 1, 128, 512, 28, "f32", False, 28, 0.0, True),
        ("RNN", 1, 256, 64, 60, "f32", False, 128, 0.0, True), ("RNN", 3, 512, 48, 80, "tf32", False, 512, 0.1, True), ("RNN", 2, 1024, 32, 60, "f16", False, 256, 0.0, False),
        ("GRU", 2, 300, 50, 60, "f32", False, 300, 0.0, True), ("LSTM", 2, 300, 50, 60, "f32", False, 300, 0.0, True), ("GRU", 4, 1024, 128, 50, "f32", False, 1024, 0.1, True), ("GRU", 2, 768, 16, 100, "f32", False, 768, 0.1, True),
    )
]  # fmt: skip


def given(call):
    torch.cuda.synchronize()
    torch.cuda.memory._record_memory_history(context=None)
    out = call()
    torch.cuda.synchronize()
    history = torch.cuda.memory._snapshot()["device_traces"][0]
    torch.cuda.memory._record_memory_history(enabled=None)
    del out
    return [one["size"] for one in history if one["action"] == "alloc"]


BIG = None


def run_marked(call, first, ahead):
    """Runs the call between two kernels that only spin. `ahead`: cycles of the first one, that the host gets ahead
    by."""
    BIG.sum()
    first.detach().mul_(1.0)
    torch.cuda._sleep(ahead)
    call()
    torch.cuda._sleep(100)
    torch.cuda.synchronize()


def between(events):
    """Kernels between each two spins: (name, begin, nanoseconds) each."""
    found, inside = [], None
    for event in sorted(events, key=lambda one: one[1]):
        if "spin_kernel" in event[0]:
            if inside is None:
                inside = []
            else:
                found.append(inside)
                inside = None
        elif inside is not None:
            inside.append(event)
    return found


def told(calls):
    sums = [sum(ns for _, _, ns in one) / 1e3 for one in calls]
    spans = [(max(b + ns for _, b, ns in one) - min(b for _, b, _ in one)) / 1e3 if one else 0.0 for one in calls]
    kernels = defaultdict(list)
    for one in calls:
        for name, _, ns in one:
            kernels[name].append(ns / 1e3)
    listed = [[name, round(len(us) / len(calls), 2), round(sum(us) / len(us), 3)] for name, us in kernels.items()]
    return {"us": round(median(sums), 3), "span": round(median(spans), 3), "kernels": listed}


def measured(group, make, reps, ahead, benchmark=False):
    """Lines of a group of cases, profiled together."""
    lines, order, todo = [], [], []
    torch.backends.cudnn.benchmark = benchmark
    with profile(activities=[ProfilerActivity.CUDA]) as p:
        for one in group:
            line = dict(one)
            try:
                calls, _keep = make(one)
                for direction, (call, first) in calls.items():
                    line[direction] = {}
                    if benchmark:
                        line[direction]["trials"] = given(call)
                    call()
                    blocks = given(call)
                    line[direction]["blocks"] = blocks
                    for _ in range(reps):
                        run_marked(call, first, ahead)
                    order += [(line, direction)] * reps
            except Exception as error:
                line["error"] = repr(error)[:300]
                print(one, line["error"], flush=True)
                torch.cuda.synchronize()
                todo.append(one)
            calls = _keep = call = first = None
            lines.append(line)
    events = [
        (event.name(), event.start_ns(), event.duration_ns())
        for event in p.profiler.kineto_results.events()
        if event.device_type() == torch.autograd.DeviceType.CUDA
    ]
    found = between(events)
    if len(found) != len(order):
        print("calls", len(order), "found", len(found), flush=True)
        if len(group) > 1:
            return [line for one in group if one not in todo for line in measured([one], make, reps, ahead, benchmark)]
        return lines
    calls = defaultdict(list)
    for (line, direction), kernels in zip(order, found, strict=True):
        calls[id(line), direction].append(kernels)
    for line in lines:
        for direction in ("fwd", "dgrad", "wgrad", "bwd"):
            if (id(line), direction) in calls:
                line[direction] |= told(calls[id(line), direction])
    return lines


def begun_groups(path):
    if not os.path.exists(path):
        return []
    with open(path) as file:
        return [line["begun"] for line in map(json.loads, file) if "begun" in line]


def main():
    global BIG
    parser = argparse.ArgumentParser()
    parser.add_argument("out")
    parser.add_argument("--part", default="0/1")
    parser.add_argument("--seconds", type=float, default=1e9)
    parser.add_argument("--only", default="")
    parser.add_argument("--seconds-at", type=float, default=1e12, help="time of day to stop at")
    parser.add_argument("--most", type=int, default=10**9)
    args = parser.parse_args()
    began, (part, parts) = time.time(), map(int, args.part.split("/"))
    BIG = torch.ones(80 << 20, device=DEV)  # 320 MB
    plans = [
        ("recurrent", RECURRENT, recurrent_calls, 3, 20_000_000, False, 2),
        ("convolution", cases(), calls_of, CALLS, 20_000, False, 32),
        ("benchmark", [one for one in cases() if one["of"] in ("vgg16", "vgg13_bn", "resnet50", "resnet18")], calls_of, 2, 20_000, True, 4),
    ]  # fmt: skip
    begun = begun_groups(args.out)
    with open(args.out, "a") as file:
        about = {
            "gpu": torch.cuda.get_device_name(0),
            "torch": torch.__version__,
            "cudnn": torch.backends.cudnn.version(),
        }
        file.write(json.dumps(about | {"date": time.strftime("%Y-%m-%d")}) + "\n")
        for family, every, make, reps, ahead, benchmark, size in plans:
            if args.only not in ("", family):
                continue
            mine = every[part::parts][: args.most]
            print(f"{time.time() - began:.0f} s: {family}, {len(mine)} of {len(every)}", flush=True)
            for at in range(0, len(mine), size):
                if time.time() > min(began + args.seconds, args.seconds_at):
                    print(f"stopped at {at} of {len(mine)}", flush=True)
                    return
                if [family, at] in begun:  # by a process that died of it
                    continue
                file.write(json.dumps({"begun": [family, at]}) + "\n")
                file.flush()
                for line in measured(mine[at : at + size], make, reps, ahead, benchmark):
                    file.write(json.dumps({"family": family} | line) + "\n")
                file.flush()
                torch.cuda.empty_cache()
                if at // size % 10 == 0:
                    print(f"{time.time() - began:.0f} s: {at}", flush=True)
    print(f"{time.time() - began:.0f} s: all", flush=True)


if __name__ == "__main__":
    main()
