"""Rank 0 watches a barrier on the CPU, which a rank does not reach because it waits on its GPU."""

from datetime import timedelta

import torch
import torch.distributed as dist
from job import start

rank, _, device = start()
cpu = dist.new_group(backend="gloo")
x = torch.ones(4, device=device)
dist.all_reduce(x)
if rank == 1:
    dist.all_reduce(x)
    torch.cuda.synchronize()  # G
dist.monitored_barrier(cpu, timeout=timedelta(seconds=3))  # W
