"""Rank 0 sends eight messages from two lines, which rank 1 receives in one loop. 2 ranks."""

import torch
import torch.distributed as dist
from job import start

rank, _, device = start()
x = torch.ones(8, device=device)
if rank == 0:
    for _ in range(7):
        dist.send(x, 1)
    dist.send(x, 1)
else:
    for _ in range(8):
        dist.recv(x, 0)
torch.cuda.synchronize()
