"""Rank 0 waits for a key of each rank, of which one is not set because its check failed."""

import torch
import torch.distributed as dist
from job import start

rank, world, device = start()
store = dist.distributed_c10d._get_default_store()
healthy = rank != 2
if healthy:
    store.set(f"ready/{rank}", "yes")
if rank == 0:
    store.wait([f"ready/{other}" for other in range(world)])  # G
x = torch.ones(4, device=device)
dist.all_reduce(x)  # W
torch.cuda.synchronize()
