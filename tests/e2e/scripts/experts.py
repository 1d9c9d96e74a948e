"""A layer of experts that are spread over the ranks: routes tokens, exchanges them, multiplies, sends them back.

Prints what each rank sends and receives, and what is left after tokens over a capacity are dropped.
"""

from __future__ import annotations

import json
import os

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

TOKENS, EXPERTS, CHOSEN, WIDTH, CAPACITY, FEW = 1024, 16, 2, 64, 96, 128

torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
dist.init_process_group("nccl")
ranks = dist.get_world_size()
told: dict[str, list[object]] = {
    name: [] for name in ("sent", "received", "kept", "second", "groups", "action", "accuracy")
}


class Exchange(torch.autograd.Function):
    """All-to-all with the sizes `sends` and `receives`."""

    @staticmethod
    def forward(ctx, x: Tensor, sends: list[int], receives: list[int]) -> Tensor:
        ctx.sizes = sends, receives
        out = x.new_empty(sum(receives), x.size(1))
        dist.all_to_all_single(out, x.contiguous(), receives, sends)
        return out

    @staticmethod
    def backward(ctx, gradient: Tensor) -> tuple[Tensor, None, None]:
        sends, receives = ctx.sizes
        out = gradient.new_empty(sum(sends), gradient.size(1))
        dist.all_to_all_single(out, gradient.contiguous(), sends, receives)
        return out, None, None


class Router(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.gate = nn.Linear(WIDTH, EXPERTS, bias=False)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return self.gate(x).softmax(-1).topk(CHOSEN, dim=-1)


class Experts(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.router = Router()
        self.experts = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(EXPERTS // ranks))

    def forward(self, x: Tensor) -> Tensor:
        weights, chosen = self.router(x)
        order = chosen.flatten().argsort(stable=True)
        sent = torch.histc(chosen.int(), bins=EXPERTS, min=0, max=EXPERTS - 1)
        received = torch.empty_like(sent)
        dist.all_to_all_single(received, sent)
        sends, receives = sent.view(ranks, -1).sum(1).tolist(), received.view(ranks, -1).sum(1).tolist()
        told["sent"].append(sent.tolist())
        told["received"].append(received.tolist())
        tokens = Exchange.apply(x[order // CHOSEN], sends, receives)
        owner = torch.arange(len(self.experts), device="cuda").repeat(ranks).repeat_interleave(received)
        out = torch.zeros_like(tokens)
        for number, expert in enumerate(self.experts):
            (rows,) = torch.where(owner == number)
            out = out.index_add(0, rows, expert(tokens[rows]))
        back = Exchange.apply(out, receives, sends)
        return x + (back[order.argsort()].view(TOKENS, CHOSEN, WIDTH) * weights[..., None]).sum(1)


class Classifier(nn.Module):
    """It tells how many it gets right."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(WIDTH, EXPERTS)

    def forward(self, x: Tensor, labels: Tensor) -> Tensor:
        return (self.head(x).max(-1).indices == labels).float().mean()


class Agent(nn.Module):
    """Is asked for actions by a method of its own, as agents of reinforcement learning are."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(WIDTH, EXPERTS)

    def act(self, x: Tensor) -> Tensor:
        return self.head(x).argmax(-1)


def drop(scores: Tensor, capacity: int) -> None:
    """Over the capacity, tokens with the lowest scores are dropped."""
    weights, chosen = scores.topk(CHOSEN, dim=-1)
    routes = torch.zeros_like(scores).int().scatter(1, chosen, 1).bool()
    _, kept = torch.zeros_like(scores).scatter(1, chosen, weights).topk(capacity, dim=0)
    routes &= torch.zeros_like(scores).scatter(0, kept, 1).bool()
    told["kept"].append(routes.sum(0).tolist())


def second(scores: Tensor) -> None:
    """The best expert, then the best of the others."""
    best = scores.argmax(-1)
    other = scores.masked_fill(nn.functional.one_hot(best, EXPERTS).bool(), float("-inf")).argmax(-1)
    told["second"].append([int((best == other).sum()), other.bincount(minlength=EXPERTS).tolist()])


def groups(scores: Tensor) -> None:
    """Each token goes to experts of one of four groups."""
    group = scores.view(TOKENS, 4, -1).amax(-1).topk(1, dim=-1).indices
    closed = torch.ones(TOKENS, 4, dtype=torch.bool, device="cuda").scatter_(1, group, False)
    chosen = scores.masked_fill(closed.repeat_interleave(EXPERTS // 4, 1), 0.0).topk(CHOSEN, dim=-1).indices
    told["groups"].append([bool((chosen // (EXPERTS // 4) == group).all()), chosen.flatten().bincount().tolist()])


model = nn.Sequential(Experts(), Experts()).cuda()
optimizer = torch.optim.AdamW(model.parameters())
for _ in range(2):
    x = torch.randn(TOKENS, WIDTH, device="cuda", requires_grad=True)
    for layer in model:
        x = checkpoint(layer, x, use_reentrant=False)
    x.sum().backward()
    optimizer.step()
    optimizer.zero_grad()
scores = torch.randn(TOKENS, EXPERTS, device="cuda") @ torch.randn(EXPERTS, EXPERTS, device="cuda")
drop(scores, CAPACITY)
drop(scores[:FEW], CAPACITY * FEW // TOKENS)
second(scores)
groups(scores)
told["action"].append(Agent().cuda().act(x[:FEW]).tolist())
told["accuracy"].append(Classifier().cuda()(x[:FEW], torch.arange(FEW, device="cuda") % EXPERTS).item())
print(json.dumps(told), flush=True)
dist.destroy_process_group()
