"""Groups that only their members make are named by how many groups a rank has made before, which differs."""

import torch.distributed as dist
from job import start

rank, world, device = start()
if rank in (0, 2):
    dist.new_group([0, 2], backend="gloo", use_local_synchronization=True)
everyone = dist.new_group(list(range(world)), backend="gloo", use_local_synchronization=True)  # G
dist.barrier(everyone)
