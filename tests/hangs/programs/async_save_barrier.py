"""A checkpoint is written by a thread that gathers over the group in which the main thread meets the others."""

import threading
import time

import torch
import torch.distributed as dist
from job import start

rank, world, device = start()
group = dist.new_group(backend="gloo")
x = torch.ones(4, device=device)


def write(step):
    time.sleep(2 if rank == 1 else 0.5)  # staging
    plans = [None] * world
    dist.all_gather_object(plans, {"step": step}, group=group)  # W


for step in range(2):
    dist.all_reduce(x)
    saving = threading.Thread(target=write, args=(step,))
    saving.start()
    time.sleep(1)
    dist.barrier(group=group)  # G
    saving.join()
