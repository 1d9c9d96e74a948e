"""A thread collects experience slowly, and the trainer looks into its buffer until there is some. 2 ranks."""

import threading
import time

import torch
import torch.distributed as dist
from job import start

rank, _, device = start()
buffer: list[torch.Tensor] = []


def collect():
    for _ in range(4):
        time.sleep(5)
        buffer.append(torch.rand(4, 8))


def batch():
    while not buffer:
        time.sleep(1)
    return buffer.pop(0)


if rank == 0:
    threading.Thread(target=collect, daemon=True).start()
for _ in range(4):
    x = batch().to(device) if rank == 0 else torch.empty(4, 8, device=device)
    dist.broadcast(x, src=0)
    print(x.sum().item())
