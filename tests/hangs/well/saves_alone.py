"""Rank 0 saves while the others wait in a gloo barrier. 2 ranks."""

import time

import torch
import torch.distributed as dist
from job import layers, start

rank, _, device = start()
cpu = dist.new_group(backend="gloo")
model = layers(device)
if rank == 0:
    torch.save(model.state_dict(), "alone.pt")
    time.sleep(2)
dist.barrier(group=cpu)
dist.broadcast(model[0].weight.data, 0)
torch.cuda.synchronize()
