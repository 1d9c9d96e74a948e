"""Distributed wrappers' own work: DTensor, FSDP2, tensor parallelism, calls of torch.distributed. The process group is
PyTorch's fake one, which communicates nothing: what NCCL takes is measured apart."""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn import functional

from .training import Model, tokens, training_step
from .workload import Run, workload


def _mesh() -> DeviceMesh:
    return init_device_mesh("cuda", (dist.get_world_size(),))


@workload
def dtensor_operators() -> Run:
    mesh = _mesh()
    x = distribute_tensor(torch.randn(16, 16, device="cuda"), mesh, [Shard(0)])
    y = distribute_tensor(torch.randn(16, 16, device="cuda"), mesh, [Replicate()])

    def run() -> None:
        for _ in range(6):
            z = torch.relu(x + 1.0) * x
            z = torch.mm(z, y)
            z.view(16, 4, 4).transpose(1, 2).to_local()

    return run


@workload
def dtensor_conversions() -> Run:
    mesh = _mesh()
    x = torch.randn(16, 16, device="cuda", requires_grad=True)

    def run() -> None:
        for _ in range(4):
            y = DTensor.from_local(x, mesh, [Shard(0)], run_check=False)
            y.redistribute(mesh, [Replicate()]).to_local()

    return run


@workload
def tensor_parallel() -> Run:
    mesh = _mesh()
    model = nn.Sequential(*(nn.Sequential(nn.Linear(32, 64), nn.GELU(), nn.Linear(64, 32)) for _ in range(2))).cuda()
    for layer in model:
        parallelize_module(layer, mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()})
    x = torch.randn(4, 32, device="cuda")

    def run() -> None:
        model(x).sum().backward()
        model.zero_grad()

    return run


def _sharded(*, mixed: bool) -> nn.Module:
    model = Model(nlayers=3).cuda()
    policy = MixedPrecisionPolicy(torch.bfloat16, torch.float32) if mixed else MixedPrecisionPolicy()
    for layer in model.layers:
        fully_shard(layer, mesh=_mesh(), mp_policy=policy)
    fully_shard(model, mesh=_mesh(), mp_policy=policy)
    return model


@workload
def fsdp() -> Run:
    return training_step(_sharded(mixed=True))


@workload
def fsdp_no_gradients() -> Run:
    model, x = _sharded(mixed=False), tokens()

    def run() -> None:
        with torch.no_grad():
            model(x)

    return run


@workload
def fsdp_optimizer() -> Run:
    model = _sharded(mixed=True)
    step = training_step(model)
    step()
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)

    def run() -> None:
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()

    return run


@workload
def data_parallel() -> Run:
    return training_step(nn.parallel.DistributedDataParallel(Model(nlayers=3).cuda()))


@workload
def collectives() -> Run:
    world = dist.get_world_size()
    x, out = torch.randn(64, device="cuda"), torch.randn(64 * world, device="cuda")

    def run() -> None:
        for _ in range(5):
            dist.all_reduce(x)
            dist.all_gather_into_tensor(out, x)
            dist.reduce_scatter_tensor(x, out)
            work = dist.all_reduce(x, async_op=True)
            assert work is not None
            work.wait()

    return run


@workload
def functional_collectives() -> Run:
    from torch.distributed import _functional_collectives as functions

    mesh, x = _mesh(), torch.randn(64, 4, device="cuda")

    def run() -> None:
        for _ in range(4):
            functional.relu(functions.all_gather_tensor(x, 0, mesh))
            functions.wait_tensor(functions.all_reduce(x, "sum", mesh))

    return run
