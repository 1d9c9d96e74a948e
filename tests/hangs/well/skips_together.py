"""A rank whose batch is broken says so before the forward pass, and all ranks skip the batch. 4 ranks."""

import torch
import torch.distributed as dist
from job import layers, start
from torch.nn.parallel import DistributedDataParallel

rank, _, device = start()
model = DistributedDataParallel(layers(device), device_ids=[device.index])
for step in range(4):
    broken = torch.tensor([int(step == 2 and rank == 2)], device=device)
    dist.all_reduce(broken, op=dist.ReduceOp.MAX)
    if broken.item():
        print("skips", step)
        continue
    model(torch.rand(2, 8, device=device)).sum().backward()
torch.cuda.synchronize()
