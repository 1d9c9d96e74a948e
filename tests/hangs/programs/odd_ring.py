"""Even ranks of a ring send on one group and receive on the other; with three ranks two even ones are neighbours."""

import torch
import torch.distributed as dist
from job import start

rank, world, device = start()
groups = [dist.new_group(), dist.new_group()]
x, y = torch.ones(64, device=device), torch.empty(64, device=device)
for group in groups:
    dist.all_reduce(x, group=group)
sends, receives = groups if rank % 2 == 0 else reversed(groups)
works = [dist.isend(x, (rank + 1) % world, group=sends), dist.irecv(y, (rank - 1) % world, group=receives)]  # G
for work in works:
    work.wait()
torch.cuda.synchronize()
