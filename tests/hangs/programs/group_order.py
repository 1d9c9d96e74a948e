"""Ranks sum norms over two groups that overlap, and their groups of parameters come in different orders."""

import torch
import torch.distributed as dist
from job import start

rank, _, device = start()
rows = [dist.new_group([0, 1]), dist.new_group([2, 3])]
columns = [dist.new_group([0, 2]), dist.new_group([1, 3])]
row, column = rows[rank // 2], columns[rank % 2]
norm = torch.ones(1, device=device)
for group in (row, column):
    dist.all_reduce(norm, group=group)
torch.cuda.synchronize()
if rank in (0, 3):
    dist.all_reduce(norm, group=row)  # G
    print(norm.item())
    dist.all_reduce(norm, group=column)
else:
    dist.all_reduce(norm, group=column)  # H
    print(norm.item())
    dist.all_reduce(norm, group=row)
print(norm.item())
