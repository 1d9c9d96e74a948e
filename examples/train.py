"""Train a Llama-style model with FSDP2 and print what it costs. Plain PyTorch; nothing in it knows of an emulator.

torchrun --nproc-per-node 8 examples/train.py            # on eight GPUs
phantora-async run -n 8 examples/train.py                # on none
"""

from __future__ import annotations

import argparse
import os
import time
from dataclasses import dataclass

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.utils.checkpoint import checkpoint


@dataclass(frozen=True)
class ModelSize:
    dim: int
    n_layers: int
    n_heads: int
    n_kv_heads: int
    ffn_dim: int
    vocab: int


SIZES = {
    "debug": ModelSize(dim=256, n_layers=4, n_heads=8, n_kv_heads=8, ffn_dim=768, vocab=2048),
    "1b": ModelSize(dim=2048, n_layers=16, n_heads=32, n_kv_heads=8, ffn_dim=8192, vocab=128256),
    "7b": ModelSize(dim=4096, n_layers=32, n_heads=32, n_kv_heads=32, ffn_dim=11008, vocab=32000),
    "8b": ModelSize(dim=4096, n_layers=32, n_heads=32, n_kv_heads=8, ffn_dim=14336, vocab=128256),
    "13b": ModelSize(dim=5120, n_layers=40, n_heads=40, n_kv_heads=40, ffn_dim=13824, vocab=32000),
}

# Dense bf16 peak in TFLOP/s by device name, for the MFU column.
PEAK_TFLOPS = {"H200": 989.4, "H100": 989.4, "A100": 312.0, "B200": 2250.0, "L40S": 362.0, "4090": 165.2}


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotary embedding of `x` [batch, seq, heads, head_dim] by tables of shape [1, seq, 1, head_dim / 2]."""
    a, b = x.chunk(2, dim=-1)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), dim=-1)


class Attention(nn.Module):
    def __init__(self, size: ModelSize) -> None:
        super().__init__()
        self.head_dim = size.dim // size.n_heads
        self.groups = size.n_heads // size.n_kv_heads
        self.wq = nn.Linear(size.dim, size.n_heads * self.head_dim, bias=False)
        self.wk = nn.Linear(size.dim, size.n_kv_heads * self.head_dim, bias=False)
        self.wv = nn.Linear(size.dim, size.n_kv_heads * self.head_dim, bias=False)
        self.wo = nn.Linear(size.n_heads * self.head_dim, size.dim, bias=False)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        batch, seq, _ = x.shape
        q, k, v = (w(x).view(batch, seq, -1, self.head_dim) for w in (self.wq, self.wk, self.wv))
        q, k = rotate(q, cos, sin), rotate(k, cos, sin)
        if self.groups > 1:
            k, v = k.repeat_interleave(self.groups, dim=2), v.repeat_interleave(self.groups, dim=2)
        out = F.scaled_dot_product_attention(q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), is_causal=True)
        return self.wo(out.transpose(1, 2).reshape(batch, seq, -1))


class FeedForward(nn.Module):
    def __init__(self, size: ModelSize) -> None:
        super().__init__()
        self.w1 = nn.Linear(size.dim, size.ffn_dim, bias=False)
        self.w2 = nn.Linear(size.ffn_dim, size.dim, bias=False)
        self.w3 = nn.Linear(size.dim, size.ffn_dim, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.w2(F.silu(self.w1(x)) * self.w3(x))


class Block(nn.Module):
    def __init__(self, size: ModelSize) -> None:
        super().__init__()
        self.attention_norm = nn.RMSNorm(size.dim, eps=1e-5)
        self.attention = Attention(size)
        self.ffn_norm = nn.RMSNorm(size.dim, eps=1e-5)
        self.ffn = FeedForward(size)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        x = x + self.attention(self.attention_norm(x), cos, sin)
        return x + self.ffn(self.ffn_norm(x))


class Llama(nn.Module):
    def __init__(self, size: ModelSize, seq_len: int, recompute: bool) -> None:
        super().__init__()
        self.recompute = recompute
        self.size, self.seq_len = size, seq_len
        self.embedding = nn.Embedding(size.vocab, size.dim)
        self.layers = nn.ModuleList(Block(size) for _ in range(size.n_layers))
        self.norm = nn.RMSNorm(size.dim, eps=1e-5)
        self.head = nn.Linear(size.dim, size.vocab, bias=False)
        half = size.dim // size.n_heads // 2
        self.register_buffer("cos", torch.empty(1, seq_len, 1, half), persistent=False)
        self.register_buffer("sin", torch.empty(1, seq_len, 1, half), persistent=False)

    @torch.no_grad()
    def initialise(self) -> None:
        for parameter in self.parameters():
            parameter.normal_(0.0, 0.02)
        half = self.cos.shape[-1]
        frequency = 10000.0 ** (-torch.arange(half, device=self.cos.device) / half)
        angle = torch.arange(self.seq_len, device=self.cos.device)[:, None] * frequency
        self.cos.copy_(angle.cos()[None, :, None])
        self.sin.copy_(angle.sin()[None, :, None])

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.embedding(tokens)
        cos, sin = self.cos.to(x.dtype), self.sin.to(x.dtype)
        for layer in self.layers:
            x = checkpoint(layer, x, cos, sin, use_reentrant=False) if self.recompute else layer(x, cos, sin)
        return self.head(self.norm(x))


def flops_per_token(size: ModelSize, seq_len: int) -> float:
    """Model FLOPs of forward and backward: 6 per weight of the matrices, plus causal attention (PaLM, appendix B)."""
    kv_dim = size.dim // size.n_heads * size.n_kv_heads
    weights = size.n_layers * (2 * size.dim * size.dim + 2 * size.dim * kv_dim + 3 * size.dim * size.ffn_dim)
    return 6 * (weights + size.dim * size.vocab) + 6 * size.n_layers * size.dim * seq_len


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", choices=SIZES, default="7b")
    parser.add_argument("--batch", type=int, default=1, help="sequences per GPU and step (default 1)")
    parser.add_argument("--seq-len", type=int, default=4096)
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--lr", type=float, default=3e-4)
    parser.add_argument("--recompute", action="store_true", help="activation checkpointing of every layer")
    return parser.parse_args()


def main() -> None:
    args = parse_args()
    size = SIZES[args.model]
    local_rank = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local_rank)
    device = torch.device("cuda", local_rank)
    dist.init_process_group("nccl", device_id=device)
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(rank)

    with torch.device("meta"):
        model = Llama(size, args.seq_len, args.recompute)
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    for layer in model.layers:
        fully_shard(layer, mp_policy=policy)
    fully_shard(model, mp_policy=policy)
    model.to_empty(device=device)
    model.initialise()
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, fused=True)

    name = torch.cuda.get_device_name(device)
    peak_tflops = next((tflops for key, tflops in PEAK_TFLOPS.items() if key in name), None)
    if rank == 0:
        count = sum(parameter.numel() for parameter in model.parameters())
        print(
            f"{count / 1e9:.2f} B parameters, {world} x {name}, {args.batch} x {args.seq_len} tokens per GPU",
            flush=True,
        )

    for step in range(1, args.steps + 1):
        tokens = torch.randint(size.vocab, (args.batch, args.seq_len + 1), device=device)
        torch.cuda.synchronize()
        started = time.perf_counter()
        logits = model(tokens[:, :-1])
        loss = F.cross_entropy(logits.float().flatten(0, 1), tokens[:, 1:].flatten())
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        torch.cuda.synchronize()
        seconds = time.perf_counter() - started
        if rank == 0:
            per_gpu = args.batch * args.seq_len / seconds
            tflops = per_gpu * flops_per_token(size, args.seq_len) / 1e12
            mfu = f"{tflops / peak_tflops:6.1%}" if peak_tflops else "   n/a"
            memory = torch.cuda.max_memory_allocated() / 2**30
            print(
                f"step {step:3d}  loss {loss.item():7.4f}  {seconds * 1e3:9.2f} ms  {per_gpu * world:12,.0f} tokens/s"
                f"  {tflops:6.1f} TFLOP/s/GPU  MFU {mfu}  peak {memory:6.2f} GiB",
                flush=True,
            )
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
