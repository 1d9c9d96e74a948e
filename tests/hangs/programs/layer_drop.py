"""Layers are dropped by chance, and one rank has drawn a number more than the others, for a short sample."""

import random

import torch
from job import layers, start
from torch.distributed.fsdp import fully_shard

rank, _, device = start()
blocks = layers(device, 4)
for block in blocks:
    fully_shard(block)
chance = random.Random(0)
for step in range(3):
    if rank == 37 and step == 1:
        chance.random()
    x = torch.rand(2, 8, device=device)
    for block in blocks:
        if chance.random() > 0.3:
            x = block(x)  # W
    x.sum().backward()  # G
torch.cuda.synchronize()
