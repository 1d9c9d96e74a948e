"""A small GPT in plain PyTorch, and random tokens for it."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

VOCABULARY, WIDTH, HEADS, LAYERS, TOKENS = 1024, 256, 4, 4, 256
Attention = Callable[[Tensor, Tensor, Tensor], Tensor]


def attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Causal; q, k and v are (batch, tokens, heads, width of a head)."""
    q, k, v = (x.transpose(1, 2) for x in (q, k, v))
    return F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).contiguous()


class Embedding(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(VOCABULARY, WIDTH), nn.Embedding(TOKENS, WIDTH)

    def forward(self, tokens: Tensor) -> Tensor:
        places = torch.arange(tokens.shape[1], device=tokens.device)
        return self.tokens(tokens) + self.places(places)


class Block(nn.Module):
    def __init__(self, attend: Attention = attention) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)
        self.attend = attend

    def forward(self, x: Tensor) -> Tensor:
        batch, tokens, _ = x.shape
        # Tensor parallelism leaves each rank a share of the heads.
        q, k, v = self.qkv(self.norm1(x)).view(batch, tokens, 3, -1, WIDTH // HEADS).unbind(2)
        x = x + self.out(self.attend(q, k, v).flatten(2))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class GPT(nn.Module):
    """Returns the logits, or the loss where labels are given. `through(block, x)` calls a block."""

    def __init__(self, attend: Attention = attention, through: Callable[..., Tensor] | None = None) -> None:
        super().__init__()
        self.embedding, self.head = Embedding(), nn.Linear(WIDTH, VOCABULARY, bias=False)
        self.blocks = nn.ModuleList(Block(attend) for _ in range(LAYERS))
        self.through = through

    def forward(self, tokens: Tensor, labels: Tensor | None = None) -> Tensor:
        x = self.embedding(tokens)
        for block in self.blocks:
            x = self.through(block, x) if self.through else block(x)
        logits: Tensor = self.head(x)
        return logits if labels is None else loss_of(logits, labels)


def loss_of(logits: Tensor, labels: Tensor) -> Tensor:
    return F.cross_entropy(logits.view(-1, VOCABULARY).float(), labels.view(-1))


class Tokens(torch.utils.data.Dataset[tuple[Tensor, Tensor]]):
    """Pairs of tokens and labels."""

    def __len__(self) -> int:
        return 1024

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        tokens = torch.randint(0, VOCABULARY, (TOKENS + 1,), generator=torch.Generator().manual_seed(index))
        return tokens[:-1], tokens[1:]
