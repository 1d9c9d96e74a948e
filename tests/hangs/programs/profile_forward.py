"""Rank 0 measures the model's operations with a forward of its own, which gathers FSDP's weights once more."""

import torch
from job import layers, start
from torch.distributed.fsdp import fully_shard

rank, _, device = start()
model = layers(device)
for layer in model:
    fully_shard(layer)
fully_shard(model)
for step in range(3):
    batch = torch.rand(2, 8, device=device)
    if step == 1 and rank == 0:
        with torch.no_grad():
            model(batch)  # G
    model(batch).sum().backward()  # W
torch.cuda.synchronize()
