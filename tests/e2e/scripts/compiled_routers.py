"""Routers that are compiled or written in Triton, and integers that compiled kernels compute.

Each rank prints the names of compiled functions whose integers differ from eager ones, the loads that routers chose,
and what it sends to and receives from the other rank.
"""

from __future__ import annotations

import json
import os
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
import triton
import triton.language as tl
from torch import Tensor, nn

TOKENS, EXPERTS, CHOSEN, WIDTH = 512, 16, 2, 256
torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
dist.init_process_group("nccl")
ranks = dist.get_world_size()
told: dict[str, Any] = {}


# ---- integers ---------------------------------------------------------------------------------------------------
def arithmetic(a: Tensor, b: Tensor) -> list[Tensor]:
    small = a % 128
    return [
        a * 2 + 1,
        a // 3,
        (a - 90) % 7,
        (a - 40).abs().clamp(max=33),
        (a - 50) // 8 * b,
        a.short() << 2,
        a >> 1,
        (a & 12) | (b ^ 5),
        (a % 5 == 2) & (b > 3),
        torch.where(a > b, a, -b),
        small.to(torch.int8),
        torch.maximum(a, b).int(),
        (a > 100).sum(dim=-1),
        a.flip(0) + 1,
    ]


def counting(indices: Tensor, b: Tensor) -> list[Tensor]:
    of_each = F.one_hot(indices, EXPERTS).sum(dim=(0, 1))
    same = (indices[:, :1] == indices[:, 1:]).any()
    return [
        of_each,
        of_each.view(4, -1).sum(1),
        of_each.cumsum(0) - of_each,
        of_each.argmax(),
        of_each.amin(),
        indices.amax(dim=1),
        torch.arange(40, device="cuda") * 3,
        same,
    ]


def ordering(indices: Tensor, b: Tensor) -> list[Tensor]:
    values, places = torch.sort(indices[:100, 0], stable=True)
    return [values, places, values.flip(0), places.argsort(), (values[1:] != values[:-1]).nonzero().flatten()]


choices = torch.randint(EXPERTS, (TOKENS, CHOSEN), device="cuda")
numbers = torch.arange(12 * 30, device="cuda").view(12, 30)
told["wrong"] = [
    f"{function.__name__} {n}"
    for function, inputs in (
        (arithmetic, (numbers, numbers.flip(1) % 11)),
        (counting, (choices, numbers)),
        (ordering, (choices, numbers)),
    )
    for n, (one, other) in enumerate(zip(function(*inputs), torch.compile(function)(*inputs), strict=True))
    if one.tolist() != other.tolist() or one.dtype != other.dtype
]


# ---- a compiled router with its exchange ------------------------------------------------------------------------
class Dispatch(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.gate = nn.Linear(WIDTH, EXPERTS, bias=False)

    def forward(self, x: Tensor) -> tuple[Tensor, list[int], list[int], Tensor]:
        _, chosen = self.gate(x).softmax(-1).topk(CHOSEN, dim=-1)
        sent = torch.histc(chosen.int(), bins=EXPERTS, min=0, max=EXPERTS - 1).int()
        received = torch.empty_like(sent)
        dist.all_to_all_single(received, sent)
        sends, receives = sent.view(ranks, -1).sum(1).tolist(), received.view(ranks, -1).sum(1).tolist()
        order = chosen.flatten().argsort(stable=True)
        out = x.new_empty(sum(receives), x.size(1))
        dist.all_to_all_single(out, x[order // CHOSEN], receives, sends)
        return out, sends, receives, sent


with torch.no_grad():
    _, told["sends"], told["receives"], sent = torch.compile(Dispatch().cuda())(
        torch.randn(TOKENS, WIDTH, device="cuda")
    )
told["compiled"] = sent.tolist()


# ---- routers whose kernels choose -------------------------------------------------------------------------------
@triton.jit
def top2(scores, chosen, experts: tl.constexpr):  # type: ignore[no-untyped-def]
    row = tl.program_id(0)
    places = tl.arange(0, experts)
    x = tl.load(scores + row * experts + places)
    first = tl.argmax(x, 0)
    second = tl.argmax(tl.where(places == first, float("-inf"), x), 0)
    tl.store(chosen + row * 2, first)
    tl.store(chosen + row * 2 + 1, second)


scores = torch.randn(TOKENS, WIDTH, device="cuda") @ torch.randn(WIDTH, EXPERTS, device="cuda")
written = torch.empty(TOKENS, CHOSEN, dtype=torch.int32, device="cuda")
top2[(TOKENS,)](scores, written, EXPERTS)
told["triton"] = torch.bincount(written.flatten(), minlength=EXPERTS).tolist()
told["triton, sorted"] = written.flatten().sort().values.bincount(minlength=EXPERTS).tolist()
first = torch.compile(lambda x: (x * 2).softmax(-1).argmax(-1))(scores)
told["argmax"] = torch.histc(first.int(), bins=EXPERTS, min=0, max=EXPERTS - 1).tolist()
print(json.dumps(told), flush=True)
dist.destroy_process_group()
