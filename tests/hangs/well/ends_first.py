"""One rank ends long before the others, after its last collective. 3 ranks."""

import sys

import torch
import torch.distributed as dist
from job import start

rank, _, device = start()
group = dist.new_group([0, 2])
x = torch.ones(8, device=device)
dist.all_reduce(x)
if rank == 1:
    torch.cuda.synchronize()
    sys.exit(0)
for _ in range(20):
    dist.all_reduce(x, group=group)
torch.cuda.synchronize()
