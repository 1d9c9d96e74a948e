"""One rank runs out of training data first and begins to validate, while the other one still trains."""

import torch
import torch.distributed as dist
from job import layers, start
from torch.nn.parallel import DistributedDataParallel

rank, _, device = start()
model = DistributedDataParallel(layers(device), device_ids=[device.index])
for _ in range(4 - rank):
    model(torch.rand(2, 8, device=device)).sum().backward()  # W


def validate():
    with torch.no_grad():
        loss = model.module(torch.rand(2, 8, device=device)).mean()
    dist.all_reduce(loss)  # G
    return loss


print(f"validated: {validate().item():.3f}")
