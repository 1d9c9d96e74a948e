"""Jobs whose reasons are known: what their steps wait for is the first argument."""

from __future__ import annotations

import os
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

STEPS = 6
STRAGGLER = 1
SIZES = {"compute": (4096, 6, 8192), "host": (128, 12, 8), "network": (2048, 4, 64), "straggler": (2048, 4, 8192)}
"""Width, layers, rows."""


def layers(width: int, depth: int) -> nn.Sequential:
    return nn.Sequential(*[nn.Linear(width, width, device="cuda", dtype=torch.bfloat16) for _ in range(depth)])


def data_parallel(job: str, rank: int) -> None:
    width, depth, rows = SIZES[job]
    model = DistributedDataParallel(layers(width, depth))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    if job == "straggler" and rank == STRAGGLER:
        rows *= 4
    inputs = torch.randn(rows, width, device="cuda", dtype=torch.bfloat16)
    for _ in range(STEPS):
        model(inputs).float().pow(2).mean().backward()
        optimizer.step()
        optimizer.zero_grad()


def pipeline(rank: int, world_size: int, micro_batches: int = 2) -> None:
    """All forward, then all backward."""
    stage = layers(4096, 4)
    optimizer = torch.optim.SGD(stage.parameters(), lr=1e-3)
    for _ in range(STEPS):
        inputs, outputs = [], []
        for _ in range(micro_batches):
            batch = torch.zeros(4096, 4096, device="cuda", dtype=torch.bfloat16)
            if rank > 0:
                dist.recv(batch, rank - 1)
            inputs.append(batch.requires_grad_())
            outputs.append(stage(batch))
            if rank < world_size - 1:
                dist.send(outputs[-1].detach(), rank + 1)
        for batch, output in zip(inputs, outputs, strict=True):
            if rank < world_size - 1:
                gradient = torch.empty_like(output)
                dist.recv(gradient, rank + 1)
                output.backward(gradient)
            else:
                output.float().mean().backward()
            if rank > 0:
                dist.send(batch.grad, rank - 1)
        optimizer.step()
        optimizer.zero_grad()


def main() -> None:
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl")
    if sys.argv[1] == "pipeline":
        pipeline(dist.get_rank(), dist.get_world_size())
    else:
        data_parallel(sys.argv[1], dist.get_rank())
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
