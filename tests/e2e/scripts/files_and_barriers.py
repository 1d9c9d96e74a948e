"""Rank 0 writes a file before each barrier, late; the others look for it after the barrier."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import torch
import torch.distributed as dist

rank = int(os.environ["RANK"])
folder = Path(sys.argv[1])
torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
dist.init_process_group("nccl")
for i, options in enumerate(({}, {"device_ids": [torch.cuda.current_device()]}, {"group": dist.new_group([0, 1])})):
    if rank == 0:
        for _ in range(10_000_000):
            pass
        (folder / str(i)).write_text("written")
    dist.barrier(**options)
    assert (folder / str(i)).exists(), f"barrier {i} did not wait"
print("PASSED", flush=True)
