"""One rank prepares its data for seconds before each step. 2 ranks."""

import time

import torch
import torch.distributed as dist
from job import start

rank, _, device = start()
x = torch.ones(8, device=device)
for _ in range(2):
    if rank == 1:
        time.sleep(3)
    dist.all_reduce(x)
    torch.cuda.synchronize()
