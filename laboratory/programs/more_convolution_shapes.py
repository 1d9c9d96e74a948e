"""Shapes of convolutions of networks that people train, and around them, without a GPU: python more_convolution_shapes.py CASES.json.gz"""

import gzip
import json
import random
import sys
import torch
from torch import nn

draw = random.Random(23)
META = torch.device("meta")
found = {}


def note(net, name, *inputs):
    seen = found.setdefault(name, {})

    def hook(m, i, o):
        tr = isinstance(m, (nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d))
        pad = m.padding
        if isinstance(pad, str):
            pad = (
                tuple(d * (t - 1) // 2 for d, t in zip(m.dilation, m.kernel_size))
                if pad == "same"
                else (0,) * len(m.kernel_size)
            )
        one = dict(
            x=tuple(i[0].shape),
            w=tuple(m.weight.shape),
            stride=m.stride,
            padding=tuple(pad),
            dilation=m.dilation,
            groups=m.groups,
        )
        if tr:
            one |= dict(transposed=True, more=tuple(m.output_padding))
        seen[json.dumps(one)] = one

    for m in net.modules():
        if isinstance(m, (nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)):
            m.register_forward_hook(hook)
    with META:
        net(*inputs)


import torchvision.models as tv, timm

TIMM = [
    "resnet50",
    "resnet34",
    "resnet50d",
    "resnetv2_50",
    "resnetv2_101x1_bit",
    "seresnext50_32x4d",
    "resnext101_32x8d",
    "regnety_032",
    "regnety_080",
    "regnetx_016",
    "regnety_160",
    "densenet121",
    "densenet169",
    "efficientnet_b2",
    "efficientnetv2_rw_s",
    "tf_efficientnetv2_m",
    "mobilenetv3_large_100",
    "mobilevitv2_100",
    "convnext_tiny",
    "convnextv2_tiny",
    "vit_base_patch16_224",
    "vit_small_patch14_dinov2",
    "vit_base_patch32_224",
    "swin_tiny_patch4_window7_224",
    "inception_v4",
    "inception_resnet_v2",
    "xception41",
    "dla60",
    "hrnet_w32",
    "res2net50_26w_4s",
    "cspdarknet53",
    "vgg16_bn",
    "vgg19",
    "repvgg_b1",
    "nfnet_f0",
    "ecaresnet50d",
    "skresnet34",
    "dpn92",
    "darknet53",
    "selecsls60",
    "ghostnet_100",
    "coatnet_0_rw_224",
    "maxvit_tiny_rw_224",
    "pvt_v2_b2",
    "poolformer_s24",
    "levit_256",
    "efficientformer_l1",
    "fastvit_t8",
    "mixer_b16_224",
    "beit_base_patch16_224",
    "gernet_l",
    "lcnet_100",
    "rexnet_100",
    "resnest50d",
    "wide_resnet50_2",
    "resnet18",
    "tresnet_m",
]
BATCHES = (8, 16, 24, 32, 48, 64, 96, 128, 160, 192, 256)
for name in TIMM:
    for size in draw.sample((160, 192, 224, 256, 288, 320), 2):
        try:
            with META:
                fixed = any(
                    t in name
                    for t in ("vit", "swin", "mixer", "beit", "levit", "coat", "efficientformer", "poolformer")
                )
                net = timm.create_model(name)
            s = net.default_cfg["input_size"][-1] if fixed else size
            note(net, name, torch.empty(draw.choice(BATCHES), 3, s, s, device=META))
        except Exception as e:
            print(name, repr(e)[:100], file=sys.stderr)
for name, shape in [
    ("video.r3d_18", (3, 16, 112, 112)),
    ("video.mc3_18", (3, 16, 112, 112)),
    ("video.r2plus1d_18", (3, 16, 112, 112)),
    ("segmentation.fcn_resnet50", (3, 480, 480)),
    ("segmentation.deeplabv3_resnet101", (3, 385, 385)),
    ("segmentation.lraspp_mobilenet_v3_large", (3, 400, 400)),
    ("googlenet", (3, 224, 224)),
    ("squeezenet1_1", (3, 224, 224)),
    ("shufflenet_v2_x1_5", (3, 224, 224)),
    ("alexnet", (3, 224, 224)),
    ("inception_v3", (3, 299, 299)),
]:
    make = tv
    for part in name.split("."):
        make = getattr(make, part)
    for _ in range(3 if "video" in name else 1):
        opts = {"init_weights": False, "aux_logits": False} if name in ("googlenet", "inception_v3") else {}
        if "segm" in name:
            opts = {"weights_backbone": None}
        with META:
            net = make(**opts)
        note(
            net,
            name,
            torch.empty(
                draw.choice((4, 8, 16, 24) if len(shape) == 4 or "segm" in name else BATCHES), *shape, device=META
            ),
        )
nets = [dict(of=n) | one for n, ones in found.items() for one in ones.values()]
print(len(nets), "of networks", file=sys.stderr)


def plain(batch, c, side, k, taps, stride=1, padding=None, dilation=1, groups=1, transposed=False, spatial=2, more=0):
    sides, taps, stride, dilation = (
        o if isinstance(o, tuple) else (o,) * spatial for o in (side, taps, stride, dilation)
    )
    pad = tuple(d * (t - 1) // 2 for d, t in zip(dilation, taps)) if padding is None else padding
    pad = pad if isinstance(pad, tuple) else (pad,) * spatial
    w = (c, k // groups, *taps) if transposed else (k, c // groups, *taps)
    out = dict(x=(batch, c, *sides), w=w, stride=stride, padding=pad, dilation=dilation, groups=groups)
    return out | (dict(transposed=True, more=(more,) * spatial) if transposed else {})


c = draw.choice
W = (16, 24, 32, 40, 48, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320, 384, 512, 640, 768, 1024)
B = lambda: c((4, 8, 16, 32, 48, 64, 96, 128, 256))


def volume():
    which = c(("first", "unet", "unet", "net", "net", "out", "down", "up", "split"))
    b = c((1, 2, 4, 8, 16))
    if which == "first":
        k, t, s = c(
            (
                (64, (3, 7, 7), (1, 2, 2)),
                (64, (3, 3, 3), 1),
                (32, 3, 1),
                (32, 3, 2),
                (16, 3, 1),
                (768, (2, 16, 16), (2, 16, 16)),
                (96, (2, 4, 4), (2, 4, 4)),
                (64, (1, 7, 7), (1, 2, 2)),
                (48, 3, 1),
                (64, 7, 2),
            )
        )
        ch = c((1, 1, 3, 3, 4, 2))
        side = c((32, 64, 96, 112, 128))
        deep = c((8, 16, 32)) if isinstance(t, tuple) else side
        return plain(
            b, ch, (deep, side, side), k, t, s, None if s in (1, 2) or t[0] == 3 or t[0] == 1 else 0, spatial=3
        )
    side = c((4, 7, 8, 14, 16, 28, 32, 48, 56, 64, 96))
    deep = c((side, side, 4, 8, 16))
    ch = c((8, 16, 32, 32, 48, 64, 64, 96, 128, 128, 160, 256, 256, 320, 512))
    k = c((ch, ch, ch, ch * 2, max(ch // 2, 8)))
    if which == "out":
        return plain(b, c((16, 32, 64)), (deep, side, side), c((1, 2, 3, 4, 14)), c((1, 3, 3)), spatial=3)
    if which == "down":
        return plain(b, ch, (deep, side, side), k, c((1, 2, 3, 3)), 2, None, spatial=3)
    if which == "up":
        return plain(b, ch, (deep, side, side), k, 2, 2, 0, spatial=3, transposed=True)
    if which == "split":
        return plain(
            b,
            ch,
            (deep, side, side),
            k,
            c(((1, 3, 3), (3, 1, 1), (1, 7, 7), (7, 1, 1), (1, 1, 1))),
            c((1, 1, 1, (1, 2, 2))),
            spatial=3,
        )
    return plain(b, ch, (deep, side, side), k, 3, c((1, 1, 1, 2)), spatial=3)


def few():
    small = c((1, 2, 3, 3, 3, 4, 6, 8, 12, 12, 16, 20, 21, 24))
    wide = c((16, 32, 64, 64, 128, 192, 256, 320, 512))
    side = c((8, 14, 16, 28, 32, 32, 48, 64, 64, 96, 128, 224, 256))
    t, s = c(((3, 1), (3, 1), (3, 2), (4, 2), (4, 2), (1, 1), (5, 1), (5, 2), (7, 1), (7, 2), (9, 1)))
    a, b = (small, wide) if draw.random() < 0.6 else (wide, small)
    return plain(B(), a, side, b, t, s, 1 if t == 4 else None)


def kxk():
    t, d = c(
        (
            (5, 1),
            (5, 1),
            (7, 1),
            ((1, 7), 1),
            ((7, 1), 1),
            ((1, 3), 1),
            ((3, 1), 1),
            (3, 2),
            (3, 4),
            (3, 6),
            (3, 12),
            (9, 1),
            (11, 1),
            (4, 1),
            (2, 1),
            (5, 2),
        )
    )
    return plain(B(), c(W), c((7, 8, 14, 16, 17, 20, 28, 32, 35, 56, 64)), c(W), t, c((1, 1, 1, 2)), dilation=d)


def dense():
    return plain(
        B(),
        c(W),
        c((4, 7, 8, 12, 14, 16, 20, 28, 32, 40, 56, 64, 80, 112, 128)),
        c(W),
        c((1, 1, 3, 3, 3)),
        c((1, 1, 2)),
    )


def groups():
    which = c(("style", "style", "net", "net", "net", "wave"))
    if which == "style":
        g, ch = c((4, 8, 16, 32)), c((32, 64, 128, 256, 512))
        side = c((4, 8, 16, 32, 64, 128))
        k = c((ch, ch, ch // 2, ch * 2))
        tr = draw.random() < 0.4
        return plain(1, g * ch, side, g * k, 3, 2 if tr else 1, 0 if tr else None, groups=g, transposed=tr)
    if which == "wave":
        return plain(
            c((4, 8, 16)),
            *c(((768, 199, 768), (512, 300, 512), (256, 400, 256), (1024, 249, 1024))),
            c((3, 5, 19, 31, 128)),
            groups=c((4, 8, 16, 32)),
            spatial=1,
        )
    of = c((4, 8, 8, 16, 16, 24, 24, 32, 40, 48, 56, 64, 80, 112, 128, 232))
    g = c((2, 3, 4, 5, 8, 9, 12, 16, 24, 32, 37, 63))
    s = c((1, 1, 1, 2))
    side = c((7, 14, 14, 28, 28, 56))
    return plain(B(), of * g, side * s, of * g, c((3, 3, 3, 5, 1)), s, groups=g)


def up():
    side = c((4, 8, 8, 16, 16, 32, 64))
    ch = c((32, 64, 64, 128, 128, 256, 512))
    k = c((ch, ch // 2, ch // 2, ch * 2))
    tr = draw.random() < 0.6
    t, s, p = c(((4, 2, 1), (4, 2, 1), (4, 2, 1), (2, 2, 0), (3, 2, 1), (4, 1, 0), (5, 2, 2)))
    return plain(
        c((16, 32, 64, 128, 256, 512)),
        ch,
        side if tr else side * s,
        k,
        t,
        s,
        p,
        transposed=tr,
        more=1 if tr and t in (3, 5) else 0,
    )


def line():
    ch = c((1, 16, 32, 64, 80, 128, 256, 384, 512, 512, 768))
    k = c((ch, ch, ch * 2, 512, 64))
    L = c((40, 100, 200, 400, 599, 1024, 2048, 3000, 4096, 8192, 16000))
    t, s, d = c(
        (
            (1, 1, 1),
            (3, 1, 1),
            (3, 1, 1),
            (3, 1, 2),
            (3, 1, 8),
            (3, 1, 32),
            (3, 2, 1),
            (5, 1, 1),
            (7, 1, 1),
            (7, 1, 3),
            (11, 1, 1),
            (10, 5, 1),
            (2, 2, 1),
            (4, 2, 1),
            (15, 1, 1),
        )
    )
    tr = draw.random() < 0.15
    return plain(
        c((4, 8, 16, 32)),
        ch,
        L // s if tr else L,
        k,
        t * 2 if tr and s > 1 else t,
        s,
        dilation=1 if tr else d,
        spatial=1,
        transposed=tr,
    )


def patch():
    t, k = c(
        (
            (16, 768),
            (16, 384),
            (14, 1024),
            (14, 384),
            (32, 768),
            (8, 192),
            (4, 96),
            (4, 64),
            (4, 128),
            (2, 96),
            (2, 192),
        )
    )
    if draw.random() < 0.35:  # further stages; reduced keys
        ch = c((32, 64, 96, 128, 160, 192, 256, 320))
        t = c((2, 2, 4, 8))
        return plain(c((8, 16, 32, 64, 128)), ch, t * c((7, 8, 14, 16, 28)), c((ch, 2 * ch)), t, t, 0)
    return plain(
        c((16, 32, 48, 64, 96, 128, 256)),
        c((3, 3, 3, 1, 4)),
        t * c((7, 12, 14, 16, 24)) if t > 4 else t * c((28, 56, 64)),
        k,
        t,
        t,
        0,
    )


KINDS = {  # by family: kind, channels last
    "": (("bf16", True),) * 4
    + (("bf16", False),) * 3
    + (("f16", False),) * 3
    + (("f16", True),) * 2
    + (("tf32", False),) * 5
    + (("tf32", True),) * 1
    + (("f32", False),) * 6,
    "groups": (("tf32", False),) * 4
    + (("f32", False),) * 4
    + (("bf16", True),) * 3
    + (("f16", False),) * 2
    + (("bf16", False),)
    + (("tf32", True),),
    "volume": (("bf16", False),) * 4
    + (("f16", False),) * 3
    + (("tf32", False),) * 5
    + (("f32", False),) * 3
    + (("bf16", True),),
}
MOST = {"f32": 3e11, "tf32": 1.2e12, "f16": 2e12, "bf16": 2e12}


def fits(one):
    tr = one.get("transposed")
    n = one["x"][0]
    pin = torch.Size(one["x"][2:]).numel()
    taps = torch.Size(one["w"][2:]).numel()
    pout = 1
    for s, a in zip(one["x"][2:], one["stride"]):
        pout *= s * a if tr else max(s // a, 1)
    k = one["w"][1] * one["groups"] if tr else one["w"][0]
    if any(
        s + 2 * p < d * (t - 1) + 1 for s, p, d, t in zip(one["x"][2:], one["padding"], one["dilation"], one["w"][2:])
    ):
        return False
    if one["groups"] > 1 and one["w"][1] == 1:
        return draw.random() < 0.25
    flops = 2.0 * n * (pin if tr else pout) * k * one["x"][1] // one["groups"] * taps
    if one["groups"] > 1 and one["kind"] in ("f32", "tf32"):
        flops *= 8
    return 4 * n * (one["x"][1] * pin + k * pout) < 1.5e9 and 2e6 < flops < MOST[one["kind"]]


draw.shuffle(nets)
used = iter(nets * 2)
MIX = (
    ["nets"] * 9
    + ["volume"] * 3
    + ["few"] * 2
    + ["kxk"] * 2
    + ["dense"] * 2
    + ["groups"] * 3
    + ["up"] * 2
    + ["line"]
    + ["patch"]
)
make = dict(volume=volume, few=few, kxk=kxk, dense=dense, groups=groups, up=up, line=line, patch=patch)
out, keys = [], set()
while len(out) < 6000:
    fam = c(MIX)
    if fam == "nets":
        one = next(used, None)
        if one is None:
            MIX = [m for m in MIX if m != "nets"]
            continue
        one = dict(one)
    else:
        one = dict(of=fam) | make[fam]()
    kind, last = c(KINDS.get("groups" if one["groups"] > 1 else "volume" if len(one["x"]) == 5 else fam, KINDS[""]))
    one |= dict(kind=kind, last=last and len(one["x"]) > 3)
    if fits(one) and (key := json.dumps(one, sort_keys=True)) not in keys:
        keys.add(key)
        out.append(one)
json.dump(out, gzip.open(sys.argv[1], "wt"))
from collections import Counter

print(
    len(out),
    Counter(o["of"] if o["of"] in make else "nets" for o in out),
    Counter((o["kind"], o["last"]) for o in out),
    file=sys.stderr,
)
