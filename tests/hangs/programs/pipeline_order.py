"""A pipeline's sends wait for their receives: rank 0 sends on before it receives a gradient that comes first."""

import torch
import torch.distributed as dist
from job import start

rank, _, device = start()
x, grad = torch.ones(64, device=device), torch.ones(64, device=device)
if rank == 0:
    dist.send(x, 1)  # forward of micro-batch 1
    dist.send(x, 1)  # G
    dist.recv(grad, 1)
else:
    dist.recv(x, 0)
    dist.send(grad, 0)  # H
    dist.recv(x, 0)  # forward of micro-batch 2
torch.cuda.synchronize()
