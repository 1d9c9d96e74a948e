"""Ranks have loaders of unequal length, agree on the shortest one, and accumulate gradients. 4 ranks."""

from contextlib import nullcontext
from itertools import islice

import torch
import torch.distributed as dist
from job import layers, start
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset

WINDOW = 4
rank, world, device = start()
model = DistributedDataParallel(layers(device), device_ids=[device.index])
loader = DataLoader(TensorDataset(torch.rand(32 if rank < world - 1 else 25, 8)), batch_size=2)
batches = torch.tensor([len(loader)], device=device)
dist.all_reduce(batches, op=dist.ReduceOp.MIN)
for number, (batch,) in enumerate(islice(loader, batches.item()), start=1):
    with model.no_sync() if number % WINDOW else nullcontext():
        model(batch.to(device)).sum().backward()
loss = model.module(torch.rand(2, 8, device=device)).mean().detach()
dist.reduce(loss, dst=0)
torch.cuda.synchronize()
