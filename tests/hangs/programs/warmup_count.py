"""A pipeline's stages warm up by as many forward passes as stages follow, although there are fewer microbatches."""

import torch
import torch.distributed as dist
from job import start

rank, world, device = start()
microbatches = 2
warm = world - rank - 1
x = torch.ones(8, device=device)


def forward():
    if rank > 0:
        dist.recv(x, rank - 1)
    if rank < world - 1:
        dist.send(x, rank + 1)  # G


def backward():
    if rank < world - 1:
        dist.recv(x, rank + 1)
    if rank > 0:
        dist.send(x, rank - 1)  # W


for _ in range(warm):
    forward()
for _ in range(microbatches - warm):
    forward()
    backward()
for _ in range(min(warm, microbatches)):
    backward()
torch.cuda.synchronize()
