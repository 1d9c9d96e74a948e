"""Calls of gloo's groups, beside NCCL's in one group and alone. All ranks give the same: folding changes nothing."""

import os

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional
from common import finish

device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
torch.cuda.set_device(device)
dist.init_process_group("cpu:gloo,cuda:nccl")
rank, world = dist.get_rank(), dist.get_world_size()
alone = dist.new_group(backend="gloo")
x = torch.ones(4, device=device)
dist.all_reduce(x)
for group in (dist.group.WORLD, alone):
    for op, expected in ((dist.ReduceOp.SUM, 3.0 * world), (dist.ReduceOp.MAX, 3), (dist.ReduceOp.PRODUCT, 3.0**world)):
        y = torch.full((4,), 3.0)
        work = dist.all_reduce(y, op, group=group, async_op=True)
        work.wait()
        assert y.tolist() == [expected] * 4, (op, y)
    y = functional.all_reduce(torch.full((2,), 3.0), "max", group)
    assert y.tolist() == [3, 3], y
    y = functional.all_reduce(torch.full((2,), 3.0), "sum", group)
    assert y.tolist() == [3 * world] * 2, y
    y = torch.full((2,), 5) if rank == 0 else torch.zeros(2, dtype=torch.int64)
    dist.broadcast(y, 0, group=group)
    assert y.tolist() == [5, 5], y
    y = torch.ones(3)
    dist.reduce(y, 0, group=group)
    assert rank or y.tolist() == [world] * 3, y
    gathered = [torch.zeros(2) for _ in range(world)]
    dist.all_gather(gathered, torch.full((2,), 7.0), group=group)
    assert torch.stack(gathered).eq(7).all(), gathered
    into = torch.zeros(2 * world)
    dist.all_gather_into_tensor(into, torch.full((2,), 7.0), group=group)
    assert into.eq(7).all(), into
    dist.gather(torch.full((2,), 8.0), gathered if rank == 0 else None, 0, group=group)
    assert rank or torch.stack(gathered).eq(8).all(), gathered
    y = torch.zeros(2)
    dist.scatter(y, [torch.full((2,), float(place)) for place in range(world)] if rank == 0 else None, 0, group=group)
    assert y.tolist() == [rank] * 2, y
    dist.all_to_all_single(into, torch.ones(2 * world), group=group)
    assert into.eq(1).all(), into
    objects = [None] * world
    dist.all_gather_object(objects, {"is": "the same"}, group=group)
    assert objects == [{"is": "the same"}] * world, objects
    dist.barrier(group)
dist.monitored_barrier(alone)
x.sum()
finish()
