"""Objects of very different sizes are gathered and scattered. 3 ranks."""

import torch.distributed as dist
from job import start

rank, world, _ = start()
found = [None] * world
dist.all_gather_object(found, "x" * 10 ** (rank + 1))
assert [len(text) for text in found] == [10, 100, 1000]
mine = [None]
dist.scatter_object_list(mine, [list(range(7**n)) for n in range(world)] if rank == 0 else None, src=0)
assert len(mine[0]) == 7**rank
