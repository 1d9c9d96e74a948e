"""Rank 0 waits in a store while rank 1 computes for a while of real time, which takes no virtual time."""

import hashlib

import torch
import torch.distributed as dist
from common import start

rank, _, device = start()
store = dist.distributed_c10d._get_default_store()
dist.all_reduce(torch.ones(8, device=device))
dist.all_reduce(torch.ones(1 << 20, device=device), async_op=True)
torch.cuda.synchronize()
if rank == 1:
    for _ in range(8):
        hashlib.pbkdf2_hmac("sha256", b"", b"", 1_000_000)
    store.set("ready", "1")
else:
    store.wait(["ready"])
dist.all_reduce(torch.ones(8, device=device))
print("held", torch.cuda.memory_allocated(), flush=True)
torch.cuda.synchronize()
dist.destroy_process_group()
