"""Each side makes the group for what it sends first, so that the sides hold different groups for one direction."""

import torch
import torch.distributed as dist
from job import start

rank, _, device = start()
groups = {"send": dist.new_group([0, 1]), "receive": dist.new_group([0, 1])}
x = torch.ones(16, device=device)
if rank == 0:
    dist.broadcast(x, src=0, group=groups["send"])  # G
    dist.broadcast(x, src=1, group=groups["receive"])
else:
    dist.broadcast(x, src=1, group=groups["send"])  # H
    dist.broadcast(x, src=0, group=groups["receive"])
torch.cuda.synchronize()
