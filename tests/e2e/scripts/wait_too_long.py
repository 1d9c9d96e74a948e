"""Waits for a collective that the other rank calls an hour later, and for one that it never calls."""

from __future__ import annotations

import time
from datetime import timedelta

import torch
import torch.distributed as dist
from common import start

rank, _, device = start()
ones = torch.ones(4, device=device)
dist.all_reduce(ones)
torch.cuda.synchronize()
began = time.time()
if rank == 1:
    time.sleep(3600)
assert dist.all_reduce(ones, async_op=True).wait(timedelta(hours=2))
print(f"rank {rank} waited {time.time() - began:.0f} s", flush=True)
if rank == 0:
    began = time.time()
    try:
        dist.all_reduce(ones, async_op=True).wait(timedelta(hours=2))
    except dist.DistBackendError:
        print(f"gave up after {time.time() - began:.0f} s", flush=True)
    raise SystemExit(3)
time.sleep(24 * 3600)
