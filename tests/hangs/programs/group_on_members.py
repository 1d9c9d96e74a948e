"""Only the members of a group make it, although all ranks have to."""

import torch
import torch.distributed as dist
from job import start

rank, _, device = start()
x = torch.ones(4, device=device)
dist.all_reduce(x)
torch.cuda.synchronize()
if rank < 2:
    pair = dist.new_group([0, 1])  # G
    dist.all_reduce(x, group=pair)
dist.all_reduce(x)  # W
torch.cuda.synchronize()
