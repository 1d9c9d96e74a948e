"""Layers of a sharded model are dropped by chance, and all ranks draw the same numbers. 4 ranks."""

import random

import torch
from job import layers, start
from torch.distributed.fsdp import fully_shard

_, _, device = start()
blocks = layers(device, 4)
for block in blocks:
    fully_shard(block)
chance = random.Random(0)
for _ in range(3):
    x = torch.rand(2, 8, device=device)
    for block in blocks:
        if chance.random() > 0.3:
            x = block(x)
    x.sum().backward()
torch.cuda.synchronize()
