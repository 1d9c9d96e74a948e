"""Kernels of one GPU that fresh jobs found priced wrong, measured as `conditions_on_gpu.py` measures: attention of cuDNN
with a mask that is given and with heads of other depths, batches of tf32 products of attention, softmax of long rows.

    python masked_on_gpu.py OUT.jsonl [--for SECONDS] [FAMILY ...]    # needs the repository on PYTHONPATH"""

import json
import random
import sys

import torch
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

import causes_on_gpu
import conditions_on_gpu as base

base.FAMILIES.clear()
base.CALLS = 3
base.CONDITIONS = ("written", "hot")
base.measured = causes_on_gpu.measured
DEV, TYPES, case, tensor = base.DEV, base.TYPES, base.case, base.tensor
draw = random.Random(5)


# ---- attention of cuDNN ----
def attention(batch, heads, keys, queries, length, depth, values, kind, what):
    def make():
        q, k = tensor(batch, heads, queries, depth, kind=kind), tensor(batch, keys, length, depth, kind=kind)
        v = tensor(batch, keys, length, values, kind=kind)
        mask = None
        if what in ("one", "each"):
            near = torch.ones(queries, length, dtype=torch.bool, device=DEV).tril().triu(-(length // 4))
            mask = torch.zeros(batch if what == "each" else 1, 1, queries, length, device=DEV, dtype=TYPES[kind])
            mask = mask.masked_fill(~near, float("-inf"))
        elif what == "heads":
            mask = tensor(batch, heads, queries, length, kind=kind)
        leaves = [one.requires_grad_() for one in (q, k, v)]
        gradient = tensor(batch, heads, queries, values, kind=kind)

        def call():
            with sdpa_kernel([SDPBackend.CUDNN_ATTENTION]):
                y = F.scaled_dot_product_attention(
                    q, k, v, attn_mask=mask, is_causal=what == "causal", enable_gqa=keys != heads
                )
            torch.autograd.grad(y, leaves, gradient)

        return call, q.detach()

    return make


for number, (batch, heads, keys, queries, length, depth, values) in enumerate((
    (1, 8, 8, 4096, 4096, 256, 256), (2, 32, 32, 4096, 4096, 128, 128), (2, 32, 32, 4096, 4096, 192, 128), (4, 16, 16, 2048, 2048, 128, 128), (8, 16, 16, 1024, 1024, 64, 64), (1, 32, 8, 8192, 8192, 128, 128), (4, 12, 12, 2048, 2048, 64, 64), (2, 8, 4, 2048, 2048, 256, 256),
    (16, 12, 12, 512, 512, 64, 64), (4, 16, 16, 2048, 2048, 192, 128), (1, 16, 16, 4096, 4096, 192, 192), (8, 16, 16, 1000, 1000, 96, 96), (2, 24, 24, 3072, 3072, 128, 128), (16, 16, 16, 512, 512, 128, 128), (1, 8, 8, 16384, 16384, 128, 128), (4, 8, 8, 1024, 1024, 256, 256),
    (32, 12, 12, 256, 256, 64, 64), (1, 128, 128, 2048, 2048, 192, 128), (2, 16, 16, 6144, 6144, 64, 64), (4, 20, 20, 1500, 1500, 80, 80), (2, 16, 16, 1024, 4096, 128, 128), (6, 16, 16, 1152, 1152, 112, 112), (2, 10, 10, 2048, 2048, 256, 256), (3, 20, 20, 2304, 2304, 128, 128),
)):  # fmt: skip
    kind = "f16" if number % 5 == 3 else "bf16"
    for what in ("one", "none", "causal", "each" if number % 2 else "heads"):
        if not (what == "heads" and batch * heads * queries * length > 6e8):
            name = f"{batch} {heads} {keys} {queries} {length} {depth} {values} {kind} {what}"
            case("attention", name, attention(batch, heads, keys, queries, length, depth, values, kind, what))


# ---- products of attention that is written out, softmax of its rows ----
for number, (batch, length, depth) in enumerate((
    (64, 2048, 64), (128, 1024, 64), (32, 4096, 64), (256, 512, 64), (64, 2048, 128), (16, 2048, 96), (96, 1024, 80), (384, 256, 64), (128, 1000, 64), (12, 4096, 128), (192, 768, 32), (40, 1536, 128),
)):  # fmt: skip
    for kind in ("tf32", "f32", "bf16"):
        if kind == "tf32" or number % 3 == 0:
            for turn in ("NT", "NN", "TN"):
                case("products", f"{batch} of {length} {length} {depth} {turn} {kind}", base.product(length, length, depth, turn, kind, batch))  # fmt: skip
                case("products", f"{batch} of {length} {depth} {length} {turn} {kind}", base.product(length, depth, length, turn, kind, batch))  # fmt: skip


def softmax(rows, width, kind, log):
    def make():
        x = tensor(rows, width, kind=kind).requires_grad_()
        gradient = tensor(rows, width, kind=kind)

        def call():
            y = F.log_softmax(x, -1) if log else F.softmax(x, -1)
            torch.autograd.grad(y, x, gradient)

        return call, x.detach()

    return make


for width in (128, 197, 256, 384, 512, 729, 1000, 1024, 1025, 1500, 2048, 2500, 4096, 8192, 12000, 16000, 24000, 32000, 32768, 50257, 50304, 65536, 100352, 128256):  # fmt: skip
    for kind in ("f32", "bf16"):
        for nbytes in (60e6, 600e6):
            case(
                "softmax",
                f"{width} {kind} {nbytes:.0f}",
                softmax(int(nbytes / width / 2 // 8 * 8), width, kind, width > 5000),
            )


if __name__ == "__main__":
    print(json.dumps({family: len(cases) for family, cases in base.FAMILIES.items()}), flush=True)
    sys.exit(base.main())
