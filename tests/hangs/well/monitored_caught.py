"""Rank 0 finds by a monitored barrier that the other rank does not come to it, and both go on. 2 ranks."""

import time
from datetime import timedelta

import torch
import torch.distributed as dist
from job import start

rank, _, device = start()
cpu = dist.new_group(backend="gloo")
x = torch.ones(4, device=device)
dist.all_reduce(x)
late = False
if rank == 1:
    time.sleep(30)
else:
    try:
        dist.monitored_barrier(cpu, timeout=timedelta(seconds=2))
    except RuntimeError as error:
        late = True
        print(error)
assert late == (rank == 0)
dist.all_reduce(x)
assert x.tolist() == [4.0] * 4
