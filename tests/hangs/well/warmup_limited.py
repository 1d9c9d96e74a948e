"""A pipeline with fewer microbatches than stages warms up by no more forward passes than there are. 4 ranks."""

import torch
import torch.distributed as dist
from job import start

rank, world, device = start()
microbatches = 2
warm = min(world - rank - 1, microbatches)
x = torch.ones(8, device=device)


def batch(*operations):
    for work in dist.batch_isend_irecv(list(operations)) if operations else ():
        work.wait()


def ahead(operation):
    return [dist.P2POp(operation, torch.ones_like(x), rank + 1)] if rank < world - 1 else []


def back(operation):
    return [dist.P2POp(operation, torch.ones_like(x), rank - 1)] if rank > 0 else []


for _ in range(warm):
    batch(*back(dist.irecv))
    batch(*ahead(dist.isend))
rest = microbatches - warm
for number in range(rest):
    if number == 0:
        batch(*back(dist.irecv))
    batch(*ahead(dist.isend), *ahead(dist.irecv))
    batch(*back(dist.isend), *(back(dist.irecv) if number < rest - 1 else []))
for _ in range(warm):
    batch(*ahead(dist.irecv))
    batch(*back(dist.isend))
torch.cuda.synchronize()
