"""Rank 0 alone logs the norm of a sharded weight, which gathers it."""

import torch
from job import layers, start
from torch.distributed.fsdp import fully_shard

rank, _, device = start()
model = layers(device, count=3)
for layer in model:
    fully_shard(layer)
fully_shard(model)
for step in range(3):
    model(torch.rand(2, 8, device=device)).sum().backward()  # W
    if step == 1 and rank == 0:
        print("norm", model[0].bias.full_tensor().norm().item())  # G
torch.cuda.synchronize()
