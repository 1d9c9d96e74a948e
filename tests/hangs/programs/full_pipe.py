"""A rank waits for the end of a program whose output nobody reads, so that its pipe is full."""

import subprocess

import torch
import torch.distributed as dist
from job import layers, start

rank, _, device = start()
model = layers(device)
if rank == 1:
    export = subprocess.Popen(["seq", "200000"], stdout=subprocess.PIPE)
    export.wait()  # G
dist.barrier()  # W
model(torch.rand(2, 8, device=device)).sum().item()
