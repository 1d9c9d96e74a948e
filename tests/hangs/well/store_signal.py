"""Ranks wait for a key of the store that rank 0 sets late. 2 ranks."""

import time

import torch
import torch.distributed as dist
from job import start

rank, _, device = start()
store = dist.distributed_c10d._get_default_store()
if rank == 0:
    time.sleep(2)
    store.set("ready", "yes")
else:
    store.wait(["ready"])
x = torch.ones(8, device=device)
dist.all_reduce(x)
torch.cuda.synchronize()
