"""Waits for a collective that the other rank calls an hour later, and for one that it never calls."""

from __future__ import annotations

import os
import time
from datetime import timedelta

import torch
import torch.distributed as dist
from common import start

# With this, every wait blocks, and has its group's timeout.
LIMIT = () if "TORCH_NCCL_BLOCKING_WAIT" in os.environ else (timedelta(hours=2),)
rank, _, device = start()
dist.distributed_c10d._set_pg_timeout(timedelta(hours=2))
ones = torch.ones(4, device=device)
dist.all_reduce(ones)
torch.cuda.synchronize()
began = time.time()
if rank == 1:
    time.sleep(3600)
assert dist.all_reduce(ones, async_op=True).wait(*LIMIT)
print(f"rank {rank} waited {time.time() - began:.0f} s", flush=True)
if rank == 0:
    began = time.time()
    try:
        dist.all_reduce(ones, async_op=True).wait(*LIMIT)
    except dist.DistBackendError:
        print(f"gave up after {time.time() - began:.0f} s", flush=True)
    raise SystemExit(3)
time.sleep(240 * 3600)
