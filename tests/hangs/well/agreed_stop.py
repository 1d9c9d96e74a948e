"""One rank wants to stop, and all agree on it by an all-reduce of a flag on the CPU. 2 ranks."""

import torch
import torch.distributed as dist
from job import layers, start
from torch.nn.parallel import DistributedDataParallel

rank, _, device = start()
cpu = dist.new_group(backend="gloo")
model = DistributedDataParallel(layers(device), device_ids=[device.index])
for step in range(10):
    model(torch.rand(2, 8, device=device)).sum().backward()
    stop = torch.tensor([step == 2 and rank == 1], dtype=torch.int32)
    dist.all_reduce(stop, op=dist.ReduceOp.MAX, group=cpu)
    if stop.item():
        break
assert step == 2
torch.cuda.synchronize()
