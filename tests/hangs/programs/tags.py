"""NCCL ignores tags: a receiver that takes messages in another order gets the wrong ones."""

import torch
import torch.distributed as dist
from job import start

rank, _, device = start()
weights, bias = torch.ones(32, device=device), torch.ones(4, device=device)
if rank == 0:
    dist.send(weights, 1, tag=1)  # W
    dist.send(bias, 1, tag=2)
else:
    dist.recv(bias, 0, tag=2)  # G
    dist.recv(weights, 0, tag=1)
torch.cuda.synchronize()
