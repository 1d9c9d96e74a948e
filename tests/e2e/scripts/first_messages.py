"""First messages: in a ring, along a pipeline, and in one group of NCCL over two communicators, in which each rank
begins with another one.
"""

import ctypes

import torch
import torch.distributed as dist
from common import finish, start
from torch.distributed import P2POp

rank, world, device = start()
after, before = (rank + 1) % world, (rank - 1) % world
own = torch.full((4,), float(rank), device=device)


def exchange(group: dist.ProcessGroup | None, to: int, come_from: int) -> torch.Tensor:
    come = torch.empty_like(own)
    works = dist.batch_isend_irecv([P2POp(dist.isend, own, to, group), P2POp(dist.irecv, come, come_from, group)])
    for work in works:
        work.wait()
    return come


assert exchange(None, after, before).tolist() == [before] * 4
assert exchange(None, before, after).tolist() == [after] * 4

stages = dist.new_group()
x = own.clone()
for _ in range(2):
    if rank > 0:
        dist.recv(x, rank - 1, stages)
    if rank < world - 1:
        dist.send(x, rank + 1, stages)
    elif rank:
        assert x.tolist() == [0] * 4

# Groups of NCCL within one are one: it begins on even ranks with the first communicator, on odd ones with the other.
# What is sent stays until the outer group ends: PyTorch holds it no longer than its own group.
nccl = ctypes.CDLL("libnccl.so.2")
groups = [dist.new_group(), dist.new_group()]
for group in groups:
    dist.all_reduce(torch.ones(1, device=device), group=group)
order = (0, 1) if rank % 2 == 0 else (1, 0)
come, sent = [torch.empty_like(own) for _ in groups], [own + place for place in range(len(groups))]
assert nccl.ncclGroupStart() == 0
for place in order:
    dist.batch_isend_irecv(
        [P2POp(dist.isend, sent[place], after, groups[place]), P2POp(dist.irecv, come[place], before, groups[place])]
    )
assert nccl.ncclGroupEnd() == 0
torch.cuda.synchronize()
for place in order:
    assert come[place].tolist() == [before + place] * 4
finish()
