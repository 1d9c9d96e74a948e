"""Layers of a Llama 3 8B on one GPU, compiled, in bf16 or with torchao's float8, and FlashAttention 2: the part of
torchtitan's rows that needs no second GPU. It runs on a GPU as well as emulated.

    python float8_block.py {bf16,float8} TOKENS SEQUENCES LAYERS
"""

import sys
import time

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

WIDTH, HEADS, KEYS, DEPTH, BETWEEN, WORDS = 4096, 32, 8, 128, 14336, 128256


def rotate(x: Tensor, angles: Tensor) -> Tensor:
    pairs = torch.view_as_complex(x.float().reshape(*x.shape[:-1], -1, 2))
    return torch.view_as_real(pairs * angles[:, None]).flatten(3).type_as(x)


def linear(inputs: int, outputs: int) -> nn.Linear:
    return nn.Linear(inputs, outputs, bias=False)


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.q, self.o = linear(WIDTH, WIDTH), linear(WIDTH, WIDTH)
        self.k, self.v = linear(WIDTH, KEYS * DEPTH), linear(WIDTH, KEYS * DEPTH)
        self.w1, self.w2, self.w3 = linear(WIDTH, BETWEEN), linear(BETWEEN, WIDTH), linear(WIDTH, BETWEEN)
        self.before, self.between = nn.RMSNorm(WIDTH), nn.RMSNorm(WIDTH)

    def forward(self, x: Tensor, angles: Tensor) -> Tensor:
        h = self.before(x)
        q, k, v = (one(h).view(*h.shape[:2], -1, DEPTH) for one in (self.q, self.k, self.v))
        q, k = rotate(q, angles), rotate(k, angles)
        k, v = (one.repeat_interleave(HEADS // KEYS, 2) for one in (k, v))
        q, k, v = (one.transpose(1, 2) for one in (q, k, v))
        x = x + self.o(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2))
        h = self.between(x)
        return x + self.w2(F.silu(self.w1(h)) * self.w3(h))


def main() -> None:
    kind, tokens, sequences, layers = sys.argv[1], *map(int, sys.argv[2:5])
    with torch.device("cuda"):
        torch.set_default_dtype(torch.bfloat16)
        words, out, last = nn.Embedding(WORDS, WIDTH), linear(WIDTH, WORDS), nn.RMSNorm(WIDTH)
        blocks = nn.ModuleList(Block() for _ in range(layers))
        powers = 5e5 ** -(torch.arange(DEPTH // 2, dtype=torch.float32) / (DEPTH // 2))
        turned = torch.outer(torch.arange(tokens, dtype=torch.float32), powers)
        angles = torch.polar(torch.ones_like(turned), turned)
    if kind == "float8":
        from torchao.float8 import convert_to_float8_training

        convert_to_float8_training(blocks)
    for i, block in enumerate(blocks):
        blocks[i] = torch.compile(block, fullgraph=True)
    for step in range(12):
        torch.cuda.synchronize()
        began = time.perf_counter()
        given = torch.randint(WORDS, (sequences, tokens + 1), device="cuda")
        with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
            x = words(given[:, :-1])
            for block in blocks:
                x = block(x, angles)
            F.cross_entropy(out(last(x)).flatten(0, 1).float(), given[:, 1:].flatten()).backward()
        for module in (words, out, last, blocks):
            module.zero_grad(set_to_none=False)
        torch.cuda.synchronize()
        print(f"{kind}, step {step}: {time.perf_counter() - began:.4f} s", flush=True)


if __name__ == "__main__":
    main()
