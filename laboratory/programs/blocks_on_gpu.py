"""Kernels of one GPU, by cause, and the blocks that each call takes from PyTorch's allocator: cuDNN's workspaces among
them. Real and emulated alike.

    python blocks_on_gpu.py OUT.jsonl [FAMILY ...] [--blocks]    # needs the repository on PYTHONPATH, torchvision

A line of a case: blocks given in its forward and in its backward call after two others, in order. Then, but for
`--blocks`, a line a signature, as `kernels_on_gpu.py` writes them."""

import json
import sys
import time

import torch
from torch import nn
from torch.nn import functional as F

DEV = "cuda"
TYPES = {"f32": torch.float32, "tf32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}
CASES = []


def case(family, name, make):
    CASES.append((family, name, make))


def tensor(*shape, kind="f32", last=False):
    x = torch.randn(shape, device=DEV).to(TYPES[kind])
    formats = {4: torch.channels_last, 5: torch.channels_last_3d}
    return (x.to(memory_format=formats[x.dim()]) if last and x.dim() in formats else x).requires_grad_()


def precise(kind):
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = kind == "tf32"


# ---- convolutions ----
def convolution(shape, kind, last, transposed=False, **options):
    x, w = shape
    apply = getattr(F, f"conv_transpose{len(x) - 2}d" if transposed else f"conv{len(x) - 2}d")

    def make():
        precise(kind)
        a, b = tensor(*x, kind=kind, last=last), tensor(*w, kind=kind, last=last)
        return (lambda: apply(a, b, None, **options)), (a, b)

    return make


SQUARES = [
    # batch, channels, image, channels out, kernel, options
    (48, 3, 224, 64, 3, {"padding": 1}),
    (48, 64, 224, 64, 3, {"padding": 1}),
    (32, 64, 112, 128, 3, {"padding": 1}),
    (32, 128, 112, 128, 3, {"padding": 1}),
    (48, 128, 56, 256, 3, {"padding": 1}),
    (32, 256, 56, 256, 3, {"padding": 1}),
    (48, 256, 28, 512, 3, {"padding": 1}),
    (32, 512, 28, 512, 3, {"padding": 1}),
    (48, 512, 14, 512, 3, {"padding": 1}),
    (8, 96, 48, 96, 3, {"padding": 1}),
    (64, 32, 32, 64, 3, {"padding": 1}),
    (256, 64, 16, 128, 3, {"padding": 1}),
    (1, 128, 200, 128, 3, {"padding": 1}),
    (4, 256, 100, 256, 3, {"padding": 1}),
    (16, 320, 40, 320, 3, {"padding": 1}),
    (64, 128, 56, 128, 3, {"padding": 1, "stride": 2}),
    (64, 256, 28, 512, 3, {"padding": 1, "stride": 2}),
    (16, 64, 160, 96, 3, {"padding": 1, "stride": 2}),
    (64, 3, 224, 64, 7, {"padding": 3, "stride": 2}),
    (64, 3, 224, 96, 4, {"stride": 4}),
    (32, 3, 224, 1280, 14, {"stride": 14}),
    (64, 96, 56, 192, 2, {"stride": 2}),
    (64, 64, 56, 256, 1, {}),
    (64, 256, 56, 64, 1, {}),
    (32, 512, 14, 2048, 1, {}),
    (8, 1024, 49, 256, 1, {}),
    (64, 256, 56, 512, 1, {"stride": 2}),
    (256, 3, 64, 96, 4, {"padding": 1, "stride": 2}),
    (256, 96, 32, 192, 4, {"padding": 1, "stride": 2}),
    (128, 64, 32, 128, 5, {"padding": 2}),
    (16, 128, 64, 3, 3, {"padding": 1}),
    (8, 512, 33, 512, 3, {"padding": 2, "dilation": 2}),
    (8, 2048, 49, 256, 3, {"padding": 12, "dilation": 12}),
]
KINDS = (
    ("f32", False),
    ("tf32", False),
    ("f16", True),
    ("bf16", False),
    ("bf16", True),
    ("tf32", True),
    ("f16", False),
)
for number, (batch, c, side, k, kernel, options) in enumerate(SQUARES):
    for at, (kind, last) in enumerate(KINDS):
        if at < 2 or (number + at) % 2 == 0:
            shape = (batch, c, side, side), (k, c, kernel, kernel)
            case("convolution", f"{shape} {options} {kind} last {last}", convolution(shape, kind, last, **options))
for number, (batch, c, side, k, kernel, options) in enumerate(
    (
        (256, 100, 1, 768, 4, {}),
        (256, 768, 4, 384, 4, {"stride": 2, "padding": 1}),
        (256, 384, 8, 192, 4, {"stride": 2, "padding": 1}),
        (128, 192, 16, 96, 4, {"stride": 2, "padding": 1}),
        (256, 96, 32, 3, 4, {"stride": 2, "padding": 1}),
        (8, 1024, 24, 512, 2, {"stride": 2}),
        (16, 256, 64, 128, 2, {"stride": 2}),
        (8, 128, 192, 64, 2, {"stride": 2}),
        (64, 128, 32, 128, 3, {"stride": 2, "padding": 1, "output_padding": 1}),
    )
):
    for at, (kind, last) in enumerate((("f32", False), ("tf32", False), ("bf16", True), ("f16", False))):
        if at < 2 or (number + at) % 2 == 0:
            shape = (batch, c, side, side), (c, k, kernel, kernel)
            name = f"{shape} {options} {kind} last {last}"
            case("transposed", name, convolution(shape, kind, last, True, **options))
for number, (batch, c, length, k, kernel, options) in enumerate(
    (
        (16, 80, 32, 256, 7, {"padding": 3}),
        (16, 128, 256, 128, 3, {"padding": 1}),
        (16, 128, 256, 128, 11, {"padding": 25, "dilation": 5}),
        (16, 64, 2048, 64, 7, {"padding": 9, "dilation": 3}),
        (16, 32, 4096, 32, 11, {"padding": 5}),
        (16, 16, 8192, 16, 11, {"padding": 25, "dilation": 5}),
        (8, 1, 80000, 512, 10, {"stride": 5}),
        (8, 512, 15999, 512, 3, {"stride": 2}),
        (8, 512, 1999, 512, 2, {"stride": 2}),
        (8, 768, 249, 768, 128, {"padding": 64, "groups": 16}),
        (16, 384, 299, 384, 31, {"padding": 15, "groups": 384}),
        (8, 1536, 1024, 1536, 4, {"padding": 3, "groups": 1536}),
        (16, 384, 299, 768, 1, {}),
        (16, 512, 1024, 1024, 1, {}),
        (8, 80, 3000, 768, 3, {"padding": 1}),
        (8, 768, 3000, 768, 3, {"padding": 1, "stride": 2}),
    )
):
    for at, kind in enumerate(("f32", "tf32", "bf16", "f16")):
        if (number + at) % 2 == 0:
            shape = (batch, c, length), (k, c // options.get("groups", 1), kernel)
            case("line", f"{shape} {options} {kind}", convolution(shape, kind, False, **options))
for number, (batch, c, side, k, kernel, options) in enumerate(
    (
        (2, 1, 96, 32, 3, {"padding": 1}),
        (2, 32, 96, 32, 3, {"padding": 1}),
        (2, 64, 48, 64, 3, {"padding": 1}),
        (2, 128, 24, 128, 3, {"padding": 1}),
        (2, 256, 12, 256, 3, {"padding": 1}),
        (2, 320, 6, 320, 3, {"padding": 1}),
        (2, 64, 96, 32, 3, {"padding": 1}),
        (2, 32, 96, 4, 1, {}),
        (4, 64, 40, 128, 3, {"padding": 1, "stride": 2}),
    )
):
    for at, (kind, last) in enumerate((("f32", False), ("tf32", False), ("f16", False), ("bf16", True))):
        if (number + at) % 2 == 0 or at == 2:
            shape = (batch, c, side, side, side), (k, c, kernel, kernel, kernel)
            case("volume", f"{shape} {options} {kind} last {last}", convolution(shape, kind, last, **options))


# ---- recurrent networks ----
def recurrent(mode, layers, width, batch, steps, kind, both, inputs):
    def make():
        precise(kind)
        net = getattr(nn, mode)(inputs, width, layers, bidirectional=both, batch_first=True, dropout=0.1 * (layers > 1))
        net = net.to(DEV, TYPES[kind]).train()
        x = tensor(batch, steps, inputs, kind=kind)
        return (lambda: net(x)[0]), (x, *net.parameters())

    return make


for mode, layers, width, batch, steps, kind, both, inputs in (
    ("LSTM", 1, 512, 64, 70, "f32", False, 512), ("LSTM", 2, 512, 64, 70, "f32", False, 512), ("LSTM", 3, 512, 64, 70, "tf32", False, 512),
    ("LSTM", 2, 1500, 20, 35, "tf32", False, 1500), ("LSTM", 2, 1024, 64, 70, "tf32", False, 1024), ("LSTM", 2, 1024, 64, 70, "f32", False, 1024),
    ("LSTM", 3, 512, 32, 200, "f16", True, 512), ("LSTM", 3, 512, 32, 200, "bf16", True, 512), ("LSTM", 2, 256, 128, 100, "f16", False, 256),
    ("LSTM", 2, 1024, 64, 128, "bf16", False, 1024), ("LSTM", 1, 128, 256, 50, "f32", False, 64), ("LSTM", 2, 650, 20, 35, "f16", False, 650),
    ("LSTM", 4, 1024, 16, 100, "f16", False, 512), ("LSTM", 1, 2048, 64, 64, "tf32", False, 1024), ("LSTM", 2, 200, 40, 60, "tf32", True, 100),
    ("GRU", 4, 768, 96, 120, "f32", False, 768), ("GRU", 1, 512, 64, 100, "tf32", False, 512), ("GRU", 2, 256, 128, 80, "f16", True, 128),
    ("GRU", 2, 1024, 64, 100, "bf16", False, 1024), ("GRU", 3, 320, 32, 150, "tf32", True, 161), ("RNN", 2, 512, 64, 100, "f32", False, 512),
):  # fmt: skip
    name = f"{mode} {layers} {width} {batch} {steps} {kind} both {both} inputs {inputs}"
    case("recurrent", name, recurrent(mode, layers, width, batch, steps, kind, both, inputs))


# ---- resampling ----
def resampling(shape, kind, last, **options):
    def make():
        x = tensor(*shape, kind=kind, last=last)
        return (lambda: F.interpolate(x, **options)), (x,)

    return make


for shape in ((8, 21, 49, 49), (16, 256, 32, 32), (4, 64, 96, 96), (2, 3, 256, 256)):
    for scale in (2, 3, 4, 8, 16):
        if shape[1] * shape[2] ** 2 * scale**2 * shape[0] < 300e6:
            for mode in ("bilinear", "nearest", "bicubic"):
                for kind, last in (("f32", False), ("bf16", False), ("f16", True)):
                    if (scale + len(mode) + last) % 2 == 0 or scale == 8:
                        name = f"{shape} by {scale} {mode} {kind} last {last}"
                        case("resampling", name, resampling(shape, kind, last, scale_factor=scale, mode=mode))
for shape, side in (
    ((8, 256, 1, 1), 49),
    ((8, 256, 33, 33), 65),
    ((2, 256, 25, 34), (50, 68)),
    ((8, 64, 128, 128), 32),
    ((16, 3, 480, 640), 224),
):
    for kind, last in (("f32", False), ("bf16", True)):
        name = f"{shape} to {side} bilinear {kind} last {last}"
        case("resampling", name, resampling(shape, kind, last, size=side, mode="bilinear", align_corners=False))
for shape, scale in (((4, 32, 16, 32, 32), 2), ((2, 16, 24, 24, 24), 4)):
    case(
        "resampling",
        f"{shape} by {scale} trilinear",
        resampling(shape, "f32", False, scale_factor=scale, mode="trilinear"),
    )


# ---- what detectors use ----
def boxes(n, side=1000.0):
    corner = torch.rand(n, 2, device=DEV) * side
    return torch.cat([corner, corner + torch.rand(n, 2, device=DEV) * 200 + 8], 1)


def nms(n):
    def make():
        import torchvision

        a, b = boxes(n), torch.rand(n, device=DEV)
        return (lambda: torchvision.ops.nms(a, b, 0.7)), ()

    return make


def align(rois, channels, side, size, ratio, kind):
    def make():
        import torchvision

        x, where = tensor(2, channels, side, side, kind=kind), boxes(rois, 600.0)
        where = torch.cat([torch.randint(2, (rois, 1), device=DEV).float(), where], 1).to(TYPES[kind])
        return (lambda: torchvision.ops.roi_align(x, where, size, side / 800, ratio)), (x,)

    return make


for n in (200, 1000, 2000, 4507, 8663, 20000):
    case("detection", f"nms {n}", nms(n))
for rois, channels, side, size, ratio, kind in (
    (512, 256, 200, 7, 2, "f32"), (1024, 256, 200, 7, 2, "f32"), (128, 256, 100, 14, 2, "f32"), (256, 256, 50, 14, 2, "f32"),
    (1000, 256, 100, 7, 2, "f16"), (512, 512, 50, 7, -1, "f32"), (64, 256, 25, 7, 2, "f32"), (100, 64, 200, 28, 4, "f32"),
):  # fmt: skip
    case(
        "detection",
        f"roi_align {rois} {channels} {side} {size} {ratio} {kind}",
        align(rois, channels, side, size, ratio, kind),
    )


# ---- attention of blocks ----
def flex(length, heads, depth, batch, mask):
    def make():
        from torch.nn.attention.flex_attention import create_block_mask, flex_attention

        kind, size = mask
        rules = {
            "window": lambda b, h, q, k: (q >= k) & (q - k < size),
            "documents": lambda b, h, q, k: (q >= k) & (q // size == k // size),
            "prefix": lambda b, h, q, k: (q >= k) | (k < size),
        }
        blocks = create_block_mask(rules[kind], None, None, length, length, device=DEV)
        q, k, v = (tensor(batch, heads, length, depth, kind="bf16") for _ in range(3))
        run = torch.compile(flex_attention)
        return (lambda: run(q, k, v, block_mask=blocks)), (q, k, v)

    return make


for length, heads, depth, batch, mask in (
    (4096, 16, 64, 4, ("window", 512)), (4096, 16, 128, 2, ("window", 512)), (4096, 16, 64, 4, ("window", 128)),
    (4096, 16, 64, 4, ("window", 2048)), (8192, 16, 64, 2, ("window", 1024)), (4096, 16, 64, 4, ("documents", 512)), (4096, 16, 64, 4, ("prefix", 1024)),
):  # fmt: skip
    case("flex", f"{length} {heads} {depth} {batch} {mask}", flex(length, heads, depth, batch, mask))


def given(call):
    torch.cuda.synchronize()
    torch.cuda.memory._record_memory_history(context=None)
    out = call()
    torch.cuda.synchronize()
    history = torch.cuda.memory._snapshot()["device_traces"][0]
    torch.cuda.memory._record_memory_history(enabled=None)
    return [one["size"] for one in history if one["action"] == "alloc"], out


def measured(family, name, make, blocks_only):
    torch.manual_seed(0)
    forward, inputs = make()

    def both():
        y = forward()
        return torch.autograd.grad(y, inputs, y.detach()) if inputs else None

    both(), both()
    ahead, y = given(forward)
    back = given(lambda: torch.autograd.grad(y, inputs, y.detach()))[0] if inputs else []
    line = {"family": family, "case": name, "forward": ahead, "backward": back}
    if blocks_only:
        return [line]
    import kernels_on_gpu

    made = both, inputs[0].detach() if inputs else None
    kernels = kernels_on_gpu.measured(family, name, lambda: made)
    torch.backends.cuda.matmul.allow_tf32 = False
    return [line, *kernels]


def main():
    blocks_only = "--blocks" in sys.argv
    out, *families = [one for one in sys.argv[1:] if one != "--blocks"]
    with open(out, "a") as file:
        told = {
            "gpu": torch.cuda.get_device_name(0),
            "torch": torch.__version__,
            "cudnn": torch.backends.cudnn.version(),
        }
        file.write(json.dumps(told | {"date": time.strftime("%Y-%m-%d")}) + "\n")
        for family, name, make in CASES:
            if families and family not in families:
                continue
            try:
                lines = measured(family, name, make, blocks_only)
            except Exception as error:
                lines = [{"family": family, "case": name, "error": repr(error)[:300]}]
                print(family, name, repr(error)[:200], flush=True)
            file.writelines(json.dumps(line) + "\n" for line in lines)
            file.flush()
            torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
