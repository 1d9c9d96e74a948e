"""A thread of each rank uses a gloo group of its own while the main thread reduces on the GPU. 2 ranks."""

import threading

import torch
import torch.distributed as dist
from job import start

rank, _, device = start()
cpu = dist.new_group(backend="gloo")


def beside():
    for _ in range(5):
        dist.all_reduce(torch.ones(4), group=cpu)


thread = threading.Thread(target=beside)
thread.start()
x = torch.ones(8, device=device)
for _ in range(10):
    dist.all_reduce(x)
torch.cuda.synchronize()
thread.join()
