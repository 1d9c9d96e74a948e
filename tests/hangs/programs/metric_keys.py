"""Each logged metric is reduced, and one rank logs a metric that the others do not have."""

import torch
import torch.distributed as dist
from job import layers, start
from torch.nn.parallel import DistributedDataParallel

rank, world, device = start()
model = DistributedDataParallel(layers(device), device_ids=[device.index])


def log_dict(metrics):
    for value in metrics.values():
        dist.all_reduce(value)  # G
        value /= world


for step in range(3):
    loss = model(torch.rand(2, 8, device=device)).mean()
    loss.backward()  # W
    metrics = {"loss": loss.detach().clone()}
    if step == 1 and rank == 1:
        metrics["rare class"] = torch.ones((), device=device)
    log_dict(metrics)
torch.cuda.synchronize()
