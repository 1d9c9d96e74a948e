"""Parts of training steps: backward passes, hooks, optimizers, small models."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from .workload import Run, workload


@workload
def backward_chain() -> Run:
    x, y = torch.randn(64, device="cuda", requires_grad=True), torch.randn(64, device="cuda")

    def run() -> None:
        z: Tensor = x
        for _ in range(20):
            z = torch.tanh(z * y) + y
        z.backward(y)
        x.grad = None

    return run


@workload
def backward_passes() -> Run:
    x = torch.randn(64, device="cuda", requires_grad=True)

    def run() -> None:
        for _ in range(10):
            x.sum().backward()
        x.grad = None

    return run


class _Scale(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, scale: float) -> Tensor:
        ctx.scale = scale
        ctx.save_for_backward(x)
        return x * scale

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        (x,) = ctx.saved_tensors
        return grad * ctx.scale, None


@workload
def python_nodes() -> Run:
    x = torch.randn(64, device="cuda", requires_grad=True)

    def run() -> None:
        z: Any = x
        for _ in range(20):
            z = _Scale.apply(z, 0.5)
        z.sum().backward()
        x.grad = None

    return run


@workload
def gradient_hooks() -> Run:
    parameters = [nn.Parameter(torch.randn(16, device="cuda")) for _ in range(30)]
    seen: list[int] = []

    def accumulated(parameter: Tensor) -> None:
        seen.append(parameter.numel())

    def passing(gradient: Tensor) -> Tensor:
        return gradient

    for parameter in parameters:
        parameter.register_post_accumulate_grad_hook(accumulated)
        parameter.register_hook(passing)

    def run() -> None:
        total = torch.stack([parameter.sum() for parameter in parameters]).sum()
        total.backward()
        del seen[:]
        for parameter in parameters:
            parameter.grad = None

    return run


class _Attention(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.q, self.k = nn.Linear(width, width, bias=False), nn.Linear(width, width, bias=False)
        self.v, self.o = nn.Linear(width, width, bias=False), nn.Linear(width, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        b, t, width = x.shape
        q, k, v = (layer(x).view(b, t, self.heads, -1).transpose(1, 2) for layer in (self.q, self.k, self.v))
        y = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.o(y.transpose(1, 2).reshape(b, t, width))


class Block(nn.Module):
    """A transformer's layer."""

    def __init__(self, width: int = 64, heads: int = 4, dropout: float = 0.0) -> None:
        super().__init__()
        self.norm1, self.attention, self.norm2 = nn.LayerNorm(width), _Attention(width, heads), nn.LayerNorm(width)
        self.mlp = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.dropout(self.attention(self.norm1(x)))
        return x + self.dropout(self.mlp(self.norm2(x)))


class Model(nn.Module):
    """A transformer."""

    def __init__(self, nlayers: int = 2, *, dropout: float = 0.0, recompute: bool = False) -> None:
        super().__init__()
        self.embedding = nn.Embedding(128, 64)
        self.layers = nn.ModuleList(Block(dropout=dropout) for _ in range(nlayers))
        self.head = nn.Linear(64, 128, bias=False)
        self.recompute = recompute

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.embedding(tokens)
        for layer in self.layers:
            x = checkpoint(layer, x, use_reentrant=False) if self.recompute else layer(x)
        return self.head(x)


def tokens() -> Tensor:
    return torch.zeros(2, 16, dtype=torch.int64, device="cuda")


def training_step(model: nn.Module, *, autocast: bool = False) -> Run:
    x = tokens()

    def run() -> None:
        with torch.autocast("cuda", torch.bfloat16, enabled=autocast):
            out = model(x)
            loss = functional.cross_entropy(out.float().flatten(0, -2), x.flatten())
        loss.backward()
        model.zero_grad()

    return run


@workload
def transformer() -> Run:
    return training_step(Model().cuda().bfloat16())


@workload
def transformer_autocast() -> Run:
    return training_step(Model(dropout=0.1).cuda(), autocast=True)


@workload
def transformer_recomputed() -> Run:
    return training_step(Model(recompute=True).cuda().bfloat16())


@workload
def convolutional() -> Run:
    def block(width: int) -> nn.Module:
        return nn.Sequential(nn.Conv2d(width, width, 3, padding=1, bias=False), nn.BatchNorm2d(width), nn.ReLU())

    model = nn.Sequential(block(8), block(8), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 8)).cuda()
    x, y = torch.randn(2, 8, 8, 8, device="cuda"), torch.zeros(2, dtype=torch.int64, device="cuda")

    def run() -> None:
        functional.cross_entropy(model(x), y).backward()
        model.zero_grad()

    return run


def _parameters(n: int) -> list[nn.Parameter]:
    parameters = [nn.Parameter(torch.randn(16, device="cuda")) for _ in range(n)]
    for parameter in parameters:
        parameter.grad = torch.randn_like(parameter)
    return parameters


@workload
def adamw_foreach() -> Run:
    return torch.optim.AdamW(_parameters(60), lr=1e-4, foreach=True).step


@workload
def adamw_fused() -> Run:
    return torch.optim.AdamW(_parameters(60), lr=1e-4, fused=True).step


@workload
def sgd_momentum() -> Run:
    return torch.optim.SGD(_parameters(60), lr=1e-4, momentum=0.9).step


@workload
def adam_single_tensor() -> Run:
    return torch.optim.Adam(_parameters(10), lr=1e-4, foreach=False).step


@workload
def gradient_clipping() -> Run:
    parameters = _parameters(60)
    return lambda: torch.nn.utils.clip_grad_norm_(parameters, 1.0)
