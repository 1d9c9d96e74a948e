"""A checkpoint is written by a thread that gathers over the group in which the main thread meets the others."""

import threading

import torch
import torch.distributed as dist
from job import start

rank, world, device = start()
group = dist.new_group(backend="gloo")
x = torch.ones(4, device=device)
staged = threading.Event()


def write(step):
    if rank == 1:
        staged.wait()  # a slow copy, which ends after the barrier
    plans, own = [torch.empty(1) for _ in range(world)], torch.full((1,), float(step))
    work = dist.all_gather(plans, own, group=group, async_op=True)
    if rank == 0:
        staged.set()
    work.wait()  # W


for step in range(2):
    dist.all_reduce(x)
    staged.clear()
    saving = threading.Thread(target=write, args=(step,))
    saving.start()
    if rank == 0:
        staged.wait()
    dist.barrier(group=group)  # G
    staged.set()
    saving.join()
