"""The thread that collects experience dies, and the trainer looks into its empty buffer for ever."""

import threading
import time

import torch
import torch.distributed as dist
from job import start

rank, _, device = start()
buffer: list[torch.Tensor] = []


def collect():
    for step in range(4):
        if step == 2:
            raise ConnectionError("the engine is gone")
        buffer.append(torch.rand(4, 8))


def batch():
    while not buffer:
        time.sleep(1)  # G
    return buffer.pop(0)


if rank == 0:
    threading.Thread(target=collect, daemon=True).start()
for _ in range(4):
    x = batch().to(device) if rank == 0 else torch.empty(4, 8, device=device)
    dist.broadcast(x, src=0)  # W
    print(x.sum().item())
