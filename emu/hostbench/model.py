"""The small transformer whose training steps the programs measure."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from .workload import Run, phase_ends

WIDTH, VOCABULARY = 64, 128


class Attention(nn.Module):
    def __init__(self, heads: int = 4) -> None:
        super().__init__()
        self.heads = heads
        self.q, self.k = nn.Linear(WIDTH, WIDTH, bias=False), nn.Linear(WIDTH, WIDTH, bias=False)
        self.v, self.o = nn.Linear(WIDTH, WIDTH, bias=False), nn.Linear(WIDTH, WIDTH, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        b, t, _ = x.shape
        q, k, v = (layer(x).view(b, t, self.heads, -1).transpose(1, 2) for layer in (self.q, self.k, self.v))
        y = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.o(y.transpose(1, 2).reshape(b, t, -1))


class Block(nn.Module):
    """A transformer's layer."""

    def __init__(self, dropout: float = 0.0) -> None:
        super().__init__()
        self.norm1, self.attention, self.norm2 = nn.LayerNorm(WIDTH), Attention(), nn.LayerNorm(WIDTH)
        self.up, self.down, self.dropout = nn.Linear(WIDTH, 128), nn.Linear(128, WIDTH), nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.dropout(self.attention(self.norm1(x)))
        return x + self.dropout(self.down(functional.gelu(self.up(self.norm2(x)))))


class Model(nn.Module):
    """Embedding, layers, head; `around` is called with each layer and its input."""

    def __init__(self, layers: list[nn.Module], around: Callable[[nn.Module, Tensor], Tensor] | None = None) -> None:
        super().__init__()
        self.embedding, self.layers = nn.Embedding(VOCABULARY, WIDTH), nn.ModuleList(layers)
        self.head = nn.Linear(WIDTH, VOCABULARY, bias=False)
        self.around = around or (lambda layer, x: layer(x))

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.embedding(tokens)
        for layer in self.layers:
            x = self.around(layer, x)
        return self.head(x)


def tokens() -> Tensor:
    return torch.zeros(2, 16, dtype=torch.int64, device="cuda")


def step_of(model: nn.Module, *, autocast: bool = False, then: Callable[[], object] | None = None) -> Run:
    """Forward, loss, backward; the gradients are dropped, unless `then` (an optimizer) needs them."""
    x = tokens()

    def run() -> None:
        with torch.autocast("cuda", torch.bfloat16, enabled=autocast):
            loss = functional.cross_entropy(model(x).float().flatten(0, -2), x.flatten())
        phase_ends("forward")
        loss.backward()
        phase_ends("backward")
        if then is not None:
            then()
            phase_ends("then")
        model.zero_grad()
        phase_ends("zero_grad")

    return run


def blocks(n: int, **options: Any) -> list[nn.Module]:
    return [Block(**options) for _ in range(n)]
