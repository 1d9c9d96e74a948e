"""Two groups carry messages, and the receiver waits for that of the second one first."""

import torch
import torch.distributed as dist
from job import start

rank, _, device = start()
first, second = dist.new_group([0, 1]), dist.new_group([0, 1])
x = torch.ones(64, device=device)
for group in (first, second):
    dist.all_reduce(x, group=group)
if rank == 0:
    dist.send(x, 1, group=first)  # G
    dist.send(x, 1, group=second)
else:
    dist.recv(x, 0, group=second)  # H
    dist.recv(x, 0, group=first)
torch.cuda.synchronize()
