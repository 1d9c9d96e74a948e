"""Shapes of convolutions for more_convolutions_on_gpu.py, without a GPU: 1x1 filters of few images and many pixels,
depthwise filters of networks that are trained today, 3x3 filters in 32 bits.

    python pointwise_shapes.py CASES.json.gz"""

import gzip
import json
import random
import sys

draw = random.Random(29)
CHANNELS = (16, 32, 48, 64, 96, 128, 160, 192, 256, 320, 384, 512, 768, 1024, 2048)
SIDES = (7, 8, 12, 14, 16, 20, 24, 28, 32, 40, 48, 56, 64, 80, 96, 112, 128, 160)


def shape(images, inputs, outputs, high, wide, taps, stride, groups, of):
    return {
        "of": of, "x": [images, inputs, high, wide], "w": [outputs, inputs // groups, taps, taps],
        "stride": [stride] * 2, "padding": [taps // 2] * 2, "dilation": [1, 1], "groups": groups,
    }  # fmt: skip


def pointwise():
    images, high = draw.choice((1, 2, 4, 4, 8, 8, 16, 16, 32, 64, 128)), draw.choice(SIDES)
    wide = high if draw.random() < 0.7 else draw.choice((20, 32, 40, 200, 1024))
    few = draw.random() < 0.12
    inputs = draw.choice((3, 4, 6, 9, 12)) if few else draw.choice(CHANNELS)
    kind, last = draw.choice((("tf32", False),) * 6 + (("bf16", False),) * 2 + (("f16", False), ("tf32", True)))
    return shape(images, inputs, draw.choice(CHANNELS), high, wide, 1, 1, 1, "pointwise") | {"kind": kind, "last": last}


def depthwise():
    channels = draw.choice(
        (32, 64, 80, 96, 128, 160, 192, 240, 256, 320, 384, 480, 512, 640, 768, 960, 1024, 1152, 1536)
    )
    taps, stride = draw.choice((3, 3, 5, 7, 7, 7, 9, 11)), draw.choice((1, 1, 1, 2))
    kind, last = draw.choice((("bf16", True), ("bf16", True), ("f16", True), ("f16", False), ("bf16", False), ("tf32", True)))  # fmt: skip
    side = draw.choice((7, 8, 10, 12, 14, 16, 20, 24, 28, 32, 40, 56, 64, 112))
    one = shape(
        draw.choice((4, 8, 16, 32, 64, 128, 256)), channels, channels, side, side, taps, stride, channels, "depthwise"
    )
    return one | {"kind": kind, "last": last}


def square():
    inputs, side = draw.choice(CHANNELS[1:12]), draw.choice(SIDES[2:])
    outputs = inputs if draw.random() < 0.5 else draw.choice(CHANNELS[1:12])
    images, stride = draw.choice((2, 4, 8, 16, 32, 64)), draw.choice((1, 1, 1, 2))
    return shape(images, inputs, outputs, side, side, 3, stride, 1, "square") | {"kind": "tf32", "last": False}


def fits(one):
    (images, inputs, high, wide), (outputs, _, taps, _) = one["x"], one["w"]
    pixels = images * high * wide
    products = pixels * inputs * outputs // one["groups"] * taps**2
    return 1e6 < pixels * max(inputs, outputs) < 1.2e8 and products < 3e11


found, keys = [], set()
MIX = [pointwise] * 5 + [depthwise] * 3 + [square] * 2
while len(found) < 1500:
    one = draw.choice(MIX)()
    key = json.dumps(one)
    if fits(one) and key not in keys:
        keys.add(key)
        found.append(one)
with gzip.open(sys.argv[1], "wt") as file:
    json.dump(found, file)
