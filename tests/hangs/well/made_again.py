"""Groups are destroyed at different times and made again. 2 ranks."""

import time

import torch
import torch.distributed as dist
from job import start

for _ in range(2):
    rank, _, device = start()
    x = torch.ones(8, device=device)
    dist.all_reduce(x)
    torch.cuda.synchronize()
    if rank == 0:
        time.sleep(1)
    dist.destroy_process_group()
