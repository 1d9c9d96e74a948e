"""The start that all programs here share: a process group, and this rank's device."""

from __future__ import annotations

import os

import torch
import torch.distributed as dist
from torch import nn


def start() -> tuple[int, int, torch.device]:
    """Joins the job; returns rank, world size and this rank's device."""
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    torch.cuda.set_device(device)
    dist.init_process_group("nccl")
    return dist.get_rank(), dist.get_world_size(), device


def layers(device: torch.device, count: int = 2, dim: int = 8) -> nn.Sequential:
    """Returns a small model."""
    return nn.Sequential(*(nn.Linear(dim, dim, device=device) for _ in range(count)))
