"""Rank 0 waits for a key of each rank, of which one comes after minutes. 3 ranks."""

import time

import torch
import torch.distributed as dist
from job import start

rank, world, device = start()
store = dist.distributed_c10d._get_default_store()
if rank == 2:
    time.sleep(200)
store.set(f"ready/{rank}", "yes")
if rank == 0:
    store.wait([f"ready/{other}" for other in range(world)])
x = torch.ones(4, device=device)
dist.all_reduce(x)
torch.cuda.synchronize()
