"""torch.distributed.pipelining: shapes travel between stages, 1F1B over microbatches."""

import argparse

import torch
import torch.distributed as dist
import torch.nn.functional as F
from common import MLP, finish, start
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe, ScheduleInterleaved1F1B

parser = argparse.ArgumentParser()
parser.add_argument("--schedule", default="1f1b")
args = parser.parse_args()
rank, world, device = start()
dim, micro = 256, 8
x = torch.randn(micro * 2, dim, device=device)
y = torch.randn(micro * 2, dim, device=device)


def stage(index: int, count: int) -> PipelineStage:
    return PipelineStage(MLP(dim, 2).to(device), index, count, device)


if args.schedule == "interleaved":
    stages = [stage(rank, 2 * world), stage(rank + world, 2 * world)]
    schedule = ScheduleInterleaved1F1B(stages, micro, loss_fn=F.mse_loss)
else:
    stages = [stage(rank, world)]
    schedule = {"1f1b": Schedule1F1B, "gpipe": ScheduleGPipe}[args.schedule](stages[0], micro, loss_fn=F.mse_loss)
optimizer = torch.optim.AdamW([p for s in stages for p in s.submod.parameters()])
for _ in range(3):
    losses: list = []
    if rank == 0:
        schedule.step(x)
    elif rank == world - 1:
        schedule.step(target=y, losses=losses)
        assert len(losses) == micro
    else:
        schedule.step()
    optimizer.step()
    optimizer.zero_grad()
torch.cuda.synchronize()
assert all(p.grad is None for s in stages for p in s.submod.parameters())
dist.barrier()
finish()
