"""A small job of one layout: `layouts.py hsdp SHARD`, `tensor TP`, `ddp TP`, `pipeline STAGES`."""

import sys

import torch
import torch.distributed as dist
from common import finish, start
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.nn.functional import all_reduce
from torch.distributed.pipelining import PipelineStage, Schedule1F1B
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn.parallel import DistributedDataParallel

WIDTH = 1024
layout, inner = sys.argv[1], int(sys.argv[2])
rank, world, device = start()
mesh = init_device_mesh("cuda", (world // inner, inner), mesh_dim_names=("outer", "inner"))
torch.manual_seed(1)


class Block(torch.nn.Module):
    def __init__(self, parts=1):
        super().__init__()
        self.up = torch.nn.Linear(WIDTH, 4 * WIDTH // parts)
        self.down = torch.nn.Linear(4 * WIDTH // parts, WIDTH)

    def forward(self, x):
        return x + self.down(torch.relu(self.up(x)))


class Part(Block):
    """One of `inner` parts of a block."""

    def forward(self, x):
        return x + all_reduce(self.down(torch.relu(self.up(x))), group=mesh["inner"].get_group())


def sharded(model, **options):
    for block in model:
        fully_shard(block, **options)
    return fully_shard(model, **options)


blocks = [Part(inner) if layout == "ddp" else Block() for _ in range(2)]
model = torch.nn.Sequential(*blocks).to(device)
x = torch.randn(8, 512, WIDTH, device=device)
stage = mesh["inner"].get_local_rank()
if layout == "hsdp":
    sharded(model, mesh=mesh)
elif layout == "ddp":
    model = DistributedDataParallel(model, process_group=mesh["outer"].get_group())
elif layout == "pipeline":
    sharded(model, mesh=mesh["outer"])
    part = PipelineStage(model, stage, inner, device, group=mesh["inner"].get_group())
    schedule = Schedule1F1B(part, 4, loss_fn=lambda output, _: output.square().mean())
else:
    for block in model:
        parallelize_module(block, mesh["inner"], {"up": ColwiseParallel(), "down": RowwiseParallel()})
    sharded(model, mesh=mesh["outer"])
optimizer = torch.optim.AdamW(model.parameters(), foreach=True)
for _ in range(3):
    if layout == "pipeline":
        schedule.step(*([x] if stage == 0 else []), **({"target": x} if stage == inner - 1 else {}))
    else:
        model(x).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
    ones = torch.ones(1, device=device)
    dist.all_reduce(ones)
    assert ones.item() == world
finish()
