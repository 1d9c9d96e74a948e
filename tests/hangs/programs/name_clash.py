"""Each pair of ranks makes its own group and no other, so two different groups get the same name in the store."""

import os

os.environ["TORCH_DIST_USE_NCCL2"] = "0"  # the backend of the report's time: a later one exchanges no ids for groups

import torch
import torch.distributed as dist
from job import start

rank, _, device = start()
pair = [0, 1] if rank < 2 else [2, 3]
group = dist.new_group(pair)  # G
x = torch.ones(4, device=device)
dist.all_reduce(x, group=group)
torch.cuda.synchronize()
print(x[0].item())
