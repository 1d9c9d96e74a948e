"""Losses of mixture-of-experts layers are reduced over the pipeline, and the first stage has no such layer."""

import torch
import torch.distributed as dist
from job import start

rank, world, device = start()
pipeline = dist.new_group(list(range(world)))
tracker = {} if rank == 0 else {"load balancing": torch.ones(4, device=device)}


def reduce_aux_losses():
    for values in tracker.values():
        dist.all_reduce(values, group=pipeline)  # W


for _ in range(2):
    reduce_aux_losses()
    skipped = torch.zeros(1, device=device)
    dist.all_reduce(skipped, op=dist.ReduceOp.MAX, group=pipeline)  # G
torch.cuda.synchronize()
