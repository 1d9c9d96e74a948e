"""The checkpoint's condition holds on the main process only, and a barrier is inside of it."""

import torch
import torch.distributed as dist
from job import layers, start
from torch.nn.parallel import DistributedDataParallel

rank, _, device = start()
model = DistributedDataParallel(layers(device), device_ids=[device.index])
for step in range(4):
    model(torch.rand(2, 8, device=device)).sum().backward()  # W
    if rank == 0 and step == 1:
        dist.barrier()  # G
        torch.save(model.module.state_dict(), f"checkpoint-{step}.pt")
torch.cuda.synchronize()
