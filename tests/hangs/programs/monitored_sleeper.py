"""Rank 0 watches a barrier for two seconds, which one rank reaches only after minutes."""

import time
from datetime import timedelta

import torch
import torch.distributed as dist
from job import start

rank, _, device = start()
cpu = dist.new_group(backend="gloo")
dist.all_reduce(torch.ones(4, device=device))
if rank == 1:
    time.sleep(300)  # G
dist.monitored_barrier(cpu, timeout=timedelta(seconds=2))  # W
