"""One rank's loader is shorter by a window of accumulated gradients; it validates while the others still train."""

from contextlib import nullcontext

import torch
import torch.distributed as dist
from job import layers, start
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset

WINDOW = 4
rank, world, device = start()
model = DistributedDataParallel(layers(device), device_ids=[device.index])
samples = torch.rand(32 if rank < world - 1 else 25, 8)
for number, (batch,) in enumerate(DataLoader(TensorDataset(samples), batch_size=2), start=1):
    with model.no_sync() if number % WINDOW else nullcontext():
        model(batch.to(device)).sum().backward()  # W
loss = model.module(torch.rand(2, 8, device=device)).mean().detach()
dist.reduce(loss, dst=0)  # G
torch.cuda.synchronize()
