"""MPT, as the benchmark tables of llm-foundry ran it: FSDP for each block, bf16 with fp32 shards, Adam.

`phantora-async run -n 8 --fold dp=8 mpt.py --layers 32 --width 4096 --heads 32 --tokens 2048 --batch 6`. Written for this
comparison from the tables' columns and the models' published sizes; not llm-foundry's code. Flash attention is PyTorch's,
the fused loss a stand-in.
"""

from __future__ import annotations

import argparse
import os
import time

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import apply_activation_checkpointing
from torch.distributed.fsdp import FullyShardedDataParallel, MixedPrecision, ShardingStrategy
from torch.distributed.fsdp.wrap import ModuleWrapPolicy
from torch.nn import functional as F

WORDS = 50368


class LayerNorm(nn.LayerNorm):
    """A layer norm in the input's precision, whatever autocast says."""

    def forward(self, x: Tensor) -> Tensor:
        with torch.autocast("cuda", enabled=False):
            return F.layer_norm(x, self.normalized_shape, self.weight, self.bias, self.eps)


class FusedCrossEntropy(torch.autograd.Function):
    """A loss that reads, writes and keeps what a fused kernel does: one pass over the logits, and another one that
    writes over them.
    """

    @staticmethod
    def forward(ctx, logits: Tensor, labels: Tensor) -> Tensor:
        ctx.save_for_backward(logits)
        return logits.amax(-1).float().mean()

    @staticmethod
    def backward(ctx, grad: Tensor) -> tuple[Tensor, None]:
        (logits,) = ctx.saved_tensors
        return logits.mul_(grad), None


class Block(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.before, self.between = (LayerNorm(width) for _ in range(2))
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (
            one.view(*x.shape[:2], self.heads, -1).transpose(1, 2) for one in self.qkv(self.before(x)).chunk(3, -1)
        )
        attended = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(attended.transpose(1, 2).reshape(x.shape))
        return x + self.down(F.gelu(self.up(self.between(x))))


class Mpt(nn.Module):
    def __init__(self, layers: int, width: int, heads: int, tokens: int) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(WORDS, width), nn.Embedding(tokens, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.last = LayerNorm(width)

    def forward(self, words: Tensor) -> Tensor:
        x = self.words(words) + self.places(torch.arange(words.shape[1], device=words.device))
        for block in self.blocks:
            x = block(x)
        return F.linear(self.last(x), self.words.weight)


def initialise(module: nn.Module) -> None:
    """Memory that nothing was written to may hold zeros, and products of zeros draw less power: an H200 takes 16 % less
    time for them.
    """
    module.to_empty(device="cuda", recurse=False)
    with torch.no_grad():
        for parameter in module.parameters(recurse=False):
            parameter.normal_(0.0, 0.02)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("layers", "width", "heads", "tokens", "batch"):
        parser.add_argument(f"--{name}", type=int, required=True)
    parser.add_argument("--accumulate", type=int, default=1)
    parser.add_argument("--recompute", action="store_true")
    parser.add_argument("--grad-op", action="store_true", help="shard gradients and optimizer only")
    parser.add_argument("--pure", action="store_true", help="reduce in bf16")
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--times", action="store_true", help="wait for the GPU behind each step, and print its seconds")
    args = parser.parse_args()
    dist.init_process_group("nccl")
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    with torch.device("meta"):
        model = Mpt(args.layers, args.width, args.heads, args.tokens)
    parameters = sum(one.numel() for one in model.parameters())
    reduced = torch.bfloat16 if args.pure else torch.float32
    model = FullyShardedDataParallel(
        model,
        auto_wrap_policy=ModuleWrapPolicy({Block}),
        sharding_strategy=ShardingStrategy.SHARD_GRAD_OP if args.grad_op else ShardingStrategy.FULL_SHARD,
        mixed_precision=MixedPrecision(param_dtype=torch.bfloat16, reduce_dtype=reduced, buffer_dtype=reduced),
        param_init_fn=initialise,
        device_id=torch.cuda.current_device(),
        use_orig_params=False,
        limit_all_gathers=True,
    )
    if args.recompute:
        apply_activation_checkpointing(model, check_fn=lambda module: isinstance(module, Block))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, betas=(0.9, 0.95))
    if dist.get_rank() == 0:
        print(f"parameters {parameters}", flush=True)
    for _ in range(args.steps):
        began = time.perf_counter()
        for _ in range(args.accumulate):
            words = torch.randint(WORDS, (args.batch, args.tokens + 1), device="cuda")
            with torch.autocast("cuda", torch.bfloat16):
                logits = model(words[:, :-1])
                loss = FusedCrossEntropy.apply(logits.view(-1, WORDS), words[:, 1:].reshape(-1))
                del logits
            (loss / args.accumulate).backward()
        model.clip_grad_norm_(1.0)
        optimizer.step()
        optimizer.zero_grad()
        if args.times:
            torch.cuda.synchronize()
            print(f"a step took {time.perf_counter() - began:.4f} s", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
