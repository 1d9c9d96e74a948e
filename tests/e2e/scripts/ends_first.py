"""Rank 1 ends while its collectives wait for rank 0's, which comes later. Rank 0 prints what they have computed."""

from __future__ import annotations

import os

import torch
import torch.distributed as dist

torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
dist.init_process_group("nccl")
x = torch.ones(4, device="cuda")
dist.barrier()
if dist.get_rank() == 0:
    for _ in range(20_000_000):
        pass
for _ in range(3):
    dist.all_reduce(x)
    x = x + 1
if dist.get_rank() == 0:
    print(f"x is {x.tolist()}", flush=True)
