"""The parts that the test scripts share: a device, a process group, a model. Plain PyTorch."""

from __future__ import annotations

import os

import torch
import torch.distributed as dist
from torch import Tensor, nn


def start() -> tuple[int, int, torch.device]:
    """Joins the job; returns rank, world size and this rank's device."""
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    torch.cuda.set_device(device)
    dist.init_process_group("nccl")
    return dist.get_rank(), dist.get_world_size(), device


def all_are_here(device: torch.device) -> None:
    """Returns when all ranks have called it, also in real time: their sum is read."""
    count = torch.ones(1, dtype=torch.int64, device=device)
    dist.all_reduce(count)
    assert count.item() == dist.get_world_size()


def finish() -> None:
    dist.barrier()
    if dist.get_rank() == 0:
        print("PASSED", flush=True)
    dist.destroy_process_group()


class MLP(nn.Module):
    def __init__(self, dim: int, layers: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(
            nn.Sequential(nn.LayerNorm(dim), nn.Linear(dim, 4 * dim), nn.GELU(), nn.Linear(4 * dim, dim))
            for _ in range(layers)
        )

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = x + layer(x)
        return x
