"""All ranks reach a monitored barrier, one of them late. 2 ranks."""

import time
from datetime import timedelta

import torch.distributed as dist
from job import start

rank, _, _ = start()
cpu = dist.new_group(backend="gloo")
if rank == 1:
    time.sleep(2)
dist.monitored_barrier(cpu, timeout=timedelta(seconds=30))
