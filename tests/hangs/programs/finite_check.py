"""Rank 0 checks that the validation loss is finite and raises alone; the others go on to the next step."""

import math

import torch
import torch.distributed as dist
from job import layers, start

rank, _, device = start()
model = layers(device)


def validation_loss():
    value = model(torch.rand(2, 8, device=device)).mean().detach()
    dist.all_reduce(value)
    return math.nan


def log(loss):
    if rank == 0 and not math.isfinite(loss):
        raise RuntimeError(f"validation loss is {loss}")  # G


for _ in range(2):
    log(validation_loss())
    gradient = torch.ones(64, device=device)
    dist.all_reduce(gradient)  # W
    torch.cuda.synchronize()
