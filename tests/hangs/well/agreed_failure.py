"""One rank fails to load, tells the others by an object, and all go on without the file. 2 ranks."""

import torch.distributed as dist
from job import start

rank, world, _ = start()
error = None
try:
    if rank == 1:
        raise OSError("no such checkpoint")
except OSError as raised:
    error = str(raised)
errors = [None] * world
dist.all_gather_object(errors, error)
assert errors == [None, "no such checkpoint"]
dist.barrier()
