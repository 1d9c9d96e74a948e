"""Ranks meet in barriers of symmetric memory, and one of them comes late. 2 ranks."""

import time

import torch
import torch.distributed as dist
import torch.distributed._symmetric_memory as symm_mem
from job import start

rank, _, device = start()
buffer = symm_mem.empty(64, device=device)
handle = symm_mem.rendezvous(buffer, dist.group.WORLD)
for step in range(3):
    buffer.fill_(step)
    if rank == 1:
        time.sleep(60)
    handle.barrier()
torch.cuda.synchronize()
dist.barrier()
torch.cuda.synchronize()
