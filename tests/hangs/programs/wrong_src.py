"""A group's leader is chosen by its rank in the group, but the source of a broadcast is a rank of the world."""

import torch.distributed as dist
from job import start

rank, _, device = start()
lower, upper = dist.new_group([0, 1]), dist.new_group([2, 3])
group = lower if rank < 2 else upper


def shared(make):
    values = [make() if dist.get_rank(group) == 0 else None]
    dist.broadcast_object_list(values, src=0, group=group, device=device)  # G
    return values[0]


print(shared(lambda: {"seed": 7}))
dist.barrier()  # W
