"""Two groups without a common rank work in different orders and amounts. 4 ranks."""

import torch
import torch.distributed as dist
from job import start

rank, _, device = start()
groups = [dist.new_group([0, 1]), dist.new_group([2, 3])]
x, y = torch.ones(8, device=device), torch.ones(4, device=device)
for tensor in (x, y) if rank < 2 else (y, x, y):
    dist.all_reduce(tensor, group=groups[rank // 2])
dist.barrier()
