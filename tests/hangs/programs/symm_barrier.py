"""Ranks meet in a barrier of symmetric memory, which one of them leaves out in its last step."""

import torch
import torch.distributed as dist
import torch.distributed._symmetric_memory as symm_mem
from job import start

rank, _, device = start()
buffer = symm_mem.empty(64, device=device)
handle = symm_mem.rendezvous(buffer, dist.group.WORLD)
for step in range(3):
    buffer.fill_(step)
    if rank == 1 and step == 2:
        break
    handle.barrier()  # W
torch.cuda.synchronize()
dist.barrier()  # G
torch.cuda.synchronize()
