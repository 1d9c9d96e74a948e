"""The root broadcasts from another line than the others, and of another tensor. 2 ranks."""

import torch
import torch.distributed as dist
from job import layers, start

rank, _, device = start()
if rank == 0:
    weights = layers(device)[0].weight.detach()
    for _ in range(3):
        dist.broadcast(weights, 0)
else:
    received = torch.empty(8, 8, device=device)
    for _ in range(3):
        dist.broadcast(received, 0)
dist.barrier()
