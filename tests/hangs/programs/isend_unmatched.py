"""A message is sent that nobody receives, and the sender waits for it."""

import torch
import torch.distributed as dist
from job import start

rank, _, device = start()
x = torch.ones(16, device=device)
if rank == 0:
    work = dist.isend(x, 1)  # W
    work.wait()
dist.all_reduce(x)  # G
torch.cuda.synchronize()
