"""Rank 0 watches barriers: one to which a rank comes late, and two to which nobody else comes."""

from __future__ import annotations

import time
from datetime import timedelta

import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
if rank == 1:
    time.sleep(3)
began_s = time.monotonic()
dist.monitored_barrier(timeout=timedelta(seconds=5))
if rank == 0:
    print(f"passed after {time.monotonic() - began_s:.1f} s", flush=True)
    for all_ranks in (False, True):
        began_s = time.monotonic()
        try:
            dist.monitored_barrier(timeout=timedelta(seconds=2), wait_all_ranks=all_ranks)
        except RuntimeError as error:
            print(f"{error} (after {time.monotonic() - began_s:.1f} s)", flush=True)
else:
    time.sleep(100)
