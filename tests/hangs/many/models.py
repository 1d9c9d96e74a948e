"""Training with the parallelisms of PyTorch."""

import contextlib

import torch
import torch.distributed as dist
from cases import case, device, main, ones, rank, world
from torch import nn
from torch.distributed.algorithms.join import Join
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.distributed.pipelining import (
    PipelineStage,
    Schedule1F1B,
    ScheduleGPipe,
    ScheduleInterleaved1F1B,
    ScheduleInterleavedZeroBubble,
)
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint

DIM = 16


def layers(count=2):
    return nn.Sequential(*(nn.Linear(DIM, DIM, device=device) for _ in range(count)))


def train(model, steps=2, rows=4):
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for _ in range(steps):
        model(torch.rand(rows, DIM, device=device)).sum().backward()
        optimizer.step()
        optimizer.zero_grad()


@case((1,), (4,))
def ddp(count):
    train(DistributedDataParallel(layers(count), [device]))


@case()
def ddp_of_different_rows():
    train(DistributedDataParallel(layers(), [device]), rows=1 + rank)


@case()
def ddp_accumulates():
    model = DistributedDataParallel(layers(), [device])
    for place in range(4):
        with model.no_sync() if place < 3 else contextlib.nullcontext():
            model(torch.rand(2, DIM, device=device)).sum().backward()


@case()
def ddp_with_unused_parameters():
    model = layers(3)
    wrapped = DistributedDataParallel(model, [device], find_unused_parameters=True)
    model[1].forward = lambda x: x
    train(wrapped)


@case()
def ddp_uneven_inputs():
    model = DistributedDataParallel(layers(), [device])
    with Join([model]):
        for _ in range(1 + rank):
            model(torch.rand(2, DIM, device=device)).sum().backward()


@case()
def ddp_with_a_static_graph():
    train(DistributedDataParallel(layers(), [device], static_graph=True), steps=3)


@case()
def ddp_synchronizes_norms():
    model = nn.SyncBatchNorm.convert_sync_batchnorm(nn.Sequential(nn.Linear(DIM, DIM), nn.BatchNorm1d(DIM))).to(device)
    train(DistributedDataParallel(model, [device]))


@case()
def sharded_optimizer():
    model = DistributedDataParallel(layers(), [device])
    optimizer = ZeroRedundancyOptimizer(model.parameters(), torch.optim.SGD, lr=0.1)
    model(torch.rand(2, DIM, device=device)).sum().backward()
    optimizer.step()


@case((True,), (False,))
def fsdp2(reshards):
    model = layers(3)
    for layer in model:
        fully_shard(layer, reshard_after_forward=reshards)
    fully_shard(model)
    train(model)


@case()
def fsdp2_accumulates():
    model = layers()
    fully_shard(model)
    for place in range(3):
        model.set_requires_gradient_sync(place == 2)
        model(torch.rand(2, DIM, device=device)).sum().backward()


@case()
def fsdp2_by_nodes():
    mesh = init_device_mesh("cuda", (2, world // 2), mesh_dim_names=("replicate", "shard"))
    model = layers()
    fully_shard(model, mesh=mesh)
    train(model)


@case()
def fsdp2_recomputes():
    model = layers(3)
    for layer in model:
        fully_shard(layer)
        forward = layer.forward
        layer.forward = lambda x, forward=forward: checkpoint(forward, x, use_reentrant=False)
    fully_shard(model)
    train(model)


@case()
def fsdp2_gathers_to_save():
    model = layers()
    fully_shard(model)
    train(model, steps=1)
    whole = {name: one.full_tensor() for name, one in model.state_dict().items()}
    if rank == 0:
        sum(one.sum().item() for one in whole.values())


@case()
def clipped_gradients():
    model = layers()
    fully_shard(model)
    model(torch.rand(2, DIM, device=device)).sum().backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)


@case()
def tensor_parallel():
    mesh = init_device_mesh("cuda", (world,))
    train(parallelize_module(layers(), mesh, {"0": ColwiseParallel(), "1": RowwiseParallel()}))


@case()
def tensor_and_data_parallel():
    mesh = init_device_mesh("cuda", (2, world // 2), mesh_dim_names=("dp", "tp"))
    model = parallelize_module(layers(), mesh["tp"], {"0": ColwiseParallel(), "1": RowwiseParallel()})
    fully_shard(model, mesh=mesh["dp"])
    train(model)


@case()
def tensors_of_a_mesh():
    mesh = init_device_mesh("cuda", (world,))
    x = distribute_tensor(torch.ones(world * 2, 4, device=device), mesh, [Shard(0)])
    x.redistribute(mesh, [Replicate()]).redistribute(mesh, [Shard(1)])
    (x + 1).sum().full_tensor()
    DTensor.from_local(ones(), mesh, [Shard(0)]).full_tensor()


def pipeline(schedule, stages, microbatches=4):
    torch.manual_seed(0)
    mine = [PipelineStage(layers(1), one, world * stages, device) for one in range(rank, world * stages, world)]
    loss = lambda y, target: (y - target).square().sum()  # noqa: E731
    run = schedule(mine[0] if stages == 1 else mine, microbatches, loss_fn=loss)
    x = torch.rand(microbatches * 2, DIM, device=device)
    for _ in range(2):
        options = {"target": x} if rank == world - 1 else {}
        run.step(*([x] if rank == 0 else []), **options)


@case()
def pipeline_gpipe():
    pipeline(ScheduleGPipe, 1)


@case((4,), (8,))
def pipeline_1f1b(microbatches):
    pipeline(Schedule1F1B, 1, microbatches)


@case()
def pipeline_interleaved():
    pipeline(ScheduleInterleaved1F1B, 2)


@case()
def pipeline_zero_bubble():
    pipeline(ScheduleInterleavedZeroBubble, 2)


class Experts(nn.Module):
    """Tokens go to the ranks of their experts and come back."""

    def __init__(self, group=None):
        super().__init__()
        self.expert, self.group = nn.Linear(DIM, DIM, device=device), group

    def forward(self, x):
        from torch.distributed.nn.functional import all_to_all_single

        there = all_to_all_single(torch.empty_like(x), x, group=self.group or dist.group.WORLD)
        return all_to_all_single(torch.empty_like(x), self.expert(there), group=self.group or dist.group.WORLD)


@case()
def expert_parallel():
    train(nn.Sequential(Experts(), Experts()), rows=world)


@case()
def experts_beside_data_parallel():
    group = dist.new_group()
    train(
        DistributedDataParallel(nn.Sequential(Experts(group), nn.Linear(DIM, DIM, device=device)), [device]), rows=world
    )


@case()
def local_sgd():
    model, optimizer = layers(), None
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for step in range(4):
        model(torch.rand(1 + rank, DIM, device=device)).sum().backward()
        optimizer.step()
        if step % 2:
            for parameter in model.parameters():
                dist.all_reduce(parameter.data)


@case()
def evaluation_on_one_rank():
    model = layers()
    wrapped = DistributedDataParallel(model, [device])
    train(wrapped)
    if rank == 0:
        with torch.no_grad():
            model(torch.rand(2, DIM, device=device)).sum().item()
    dist.barrier()


@case()
def parameters_of_rank_0():
    for parameter in layers().parameters():
        dist.broadcast(parameter.data, 0)


if __name__ == "__main__":
    main()
