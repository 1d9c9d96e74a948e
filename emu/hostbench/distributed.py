"""Work of the distributed wrappers: DTensor, FSDP2, tensor parallelism, calls of torch.distributed.

With one GPU the process group is PyTorch's fake one, which communicates nothing.
"""

from __future__ import annotations

import itertools
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

from .model import Model, blocks, step_of, tokens
from .workload import Run, workload


def mesh_of_ranks() -> DeviceMesh:
    return init_device_mesh("cuda", (dist.get_world_size(),))


@workload
def dtensor_operators() -> Run:
    mesh = mesh_of_ranks()
    y = distribute_tensor(torch.randn(16, 16, device="cuda"), mesh, [Shard(0)])
    w = distribute_tensor(torch.randn(16, 16, device="cuda"), mesh, [Replicate()])

    def around(layer: nn.Module, x: Tensor) -> Any:
        with torch.no_grad():
            z = torch.mm(torch.relu(y + 1.0) * y, w)
            z.view(16, 4, 4).transpose(1, 2).to_local()
        return layer(x)

    return step_of(Model(blocks(4), around).cuda().bfloat16())


@workload
def dtensor_conversions() -> Run:
    mesh = mesh_of_ranks()

    def around(layer: nn.Module, x: Tensor) -> Any:
        y = DTensor.from_local(x, mesh, [Shard(0)], run_check=False)
        z = y.redistribute(mesh, [Replicate()]).to_local()
        return layer(x + z[: x.shape[0]])

    return step_of(Model(blocks(4), around).cuda().bfloat16())


@workload
def tensor_parallel() -> Run:
    mesh = mesh_of_ranks()
    model = Model(blocks(4)).cuda().bfloat16()
    for layer in model.layers:
        parallelize_module(layer, mesh, {"up": ColwiseParallel(), "down": RowwiseParallel()})
    return step_of(model)


def _sharded(*, mixed: bool) -> nn.Module:
    model = Model(blocks(4)).cuda()
    policy = MixedPrecisionPolicy(torch.bfloat16, torch.float32) if mixed else MixedPrecisionPolicy()
    for layer in model.layers:
        fully_shard(layer, mesh=mesh_of_ranks(), mp_policy=policy)
    fully_shard(model, mesh=mesh_of_ranks(), mp_policy=policy)
    return model


@workload
def fsdp() -> Run:
    return step_of(_sharded(mixed=True))


@workload
def fsdp_forward() -> Run:
    model, x = _sharded(mixed=False), tokens()

    def run() -> None:
        with torch.no_grad():
            model(x)

    return run


@workload
def fsdp_optimizer() -> Run:
    model = _sharded(mixed=True)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)

    def then() -> None:
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()

    return step_of(model, then=then)


@workload
def layer_collectives() -> Run:
    """Calls one collective a layer, of a size that takes all of NCCL's channels."""
    world = dist.get_world_size()
    sent, gathered = torch.zeros(1 << 20, device="cuda"), torch.zeros(world << 20, device="cuda")
    kinds = itertools.cycle(
        (
            lambda: dist.all_reduce(sent, async_op=True),
            lambda: dist.all_gather_into_tensor(gathered, sent, async_op=True),
            lambda: dist.reduce_scatter_tensor(sent, gathered, async_op=True),
        )
    )

    def around(layer: nn.Module, x: Tensor) -> Any:
        work = next(kinds)()
        assert work is not None
        work.wait()
        return layer(x)

    return step_of(Model(blocks(6), around).cuda().bfloat16())


@workload
def functional_collectives() -> Run:
    from torch.distributed import _functional_collectives as functions

    mesh, sent = mesh_of_ranks(), torch.randn(64, 4, device="cuda")

    def around(layer: nn.Module, x: Tensor) -> Any:
        functions.wait_tensor(functions.all_gather_tensor(sent, 0, mesh))
        functions.wait_tensor(functions.all_reduce(sent, "sum", mesh))
        return layer(x)

    return step_of(Model(blocks(4), around).cuda().bfloat16())
