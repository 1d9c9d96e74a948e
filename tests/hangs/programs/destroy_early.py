"""Rank 0 is done and destroys the process group while the other rank still reduces."""

import torch
import torch.distributed as dist
from job import start

rank, _, device = start()
x = torch.ones(64, device=device)
for _ in range(3 + rank):
    dist.all_reduce(x)  # W
dist.destroy_process_group()
print("rank", rank, "is done")
