"""Ranks have different numbers of batches, and DDP's join covers for those that are done. 2 ranks."""

import torch
from job import layers, start
from torch.nn.parallel import DistributedDataParallel

rank, _, device = start()
model = DistributedDataParallel(layers(device), device_ids=[device.index])
with model.join():
    for _ in range(2 + 3 * rank):
        model(torch.rand(2, 8, device=device)).sum().backward()
torch.cuda.synchronize()
