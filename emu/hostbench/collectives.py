"""Training steps with many small collectives: one by one, several in flight, coalesced, as messages.

Each is so small that the GPU has done it before the host gives the next one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from .model import Model, blocks, step_of
from .workload import Run, workload


def _beside_layers(work: Callable[[], object], times: int) -> Run:
    def around(layer: nn.Module, x: Tensor) -> Any:
        for _ in range(times):
            work()
        return layer(x)

    return step_of(Model(blocks(2), around).cuda().bfloat16())


def _parts(*numels: int) -> list[Tensor]:
    return [torch.zeros(numel, device="cuda") for numel in numels]


def _finish(*works: dist.Work | None) -> None:
    for work in works:
        assert work is not None
        work.wait()


@workload
def small_reductions() -> Run:
    """The caller's stream has each of them: nothing is in flight when a call returns."""
    parts = _parts(1, 256, 4096, 16384)

    def work() -> None:
        for part in parts:
            dist.all_reduce(part)

    return _beside_layers(work, 4)


@workload
def collectives_in_flight() -> Run:
    world = dist.get_world_size()
    [part, whole] = _parts(2048, 2048 * world)

    def work() -> None:
        _finish(
            dist.all_gather_into_tensor(whole, part, async_op=True),
            dist.reduce_scatter_tensor(part, whole, async_op=True),
            dist.all_reduce(part, async_op=True),
        )

    return _beside_layers(work, 4)


@workload
def coalesced_gathers() -> Run:
    """Gathers in eight collectives that one kernel of NCCL does."""
    world = dist.get_world_size()
    parts, wholes = _parts(*[1024] * 8), _parts(*[1024 * world] * 8)

    def work() -> None:
        with dist._coalescing_manager(device=parts[0].device, async_ops=True) as manager:
            for part, whole in zip(parts, wholes, strict=True):
                dist.all_gather_into_tensor(whole, part)
        manager.wait()

    return _beside_layers(work, 4)


@workload
def messages() -> Run:
    """Sends to the next rank and receives from the one before, as between the stages of a pipeline."""
    world, rank = dist.get_world_size(), dist.get_rank()
    [sent, received] = _parts(4096, 4096)

    def work() -> None:
        to, of = (rank + 1) % world, (rank - 1) % world
        operations = [dist.P2POp(dist.isend, sent, to), dist.P2POp(dist.irecv, received, of)]
        _finish(*dist.batch_isend_irecv(operations))

    return _beside_layers(work, 8)


@workload
def exchanges() -> Run:
    world = dist.get_world_size()
    [sent, received] = _parts(1024 * world, 1024 * world)

    def work() -> None:
        dist.all_to_all_single(received, sent)
        _finish(dist.all_to_all_single(sent, received, async_op=True))

    return _beside_layers(work, 4)
