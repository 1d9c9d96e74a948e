"""Many steps, each with a line on the terminal and one in a file that is not flushed."""

from __future__ import annotations

import argparse
import os
import sys
import time

import torch
import torch.distributed as dist
from common import MLP, start
from torch.nn.parallel import DistributedDataParallel

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=1000)
parser.add_argument("--log", default=os.devnull)
parser.add_argument("--idle-rank", type=int, default=-1, help="a rank that trains nothing and waits for the others")
parser.add_argument("--clock", action="store_true")
arguments = parser.parse_args()
rank, world, device = start()
trainers = dist.new_group([other for other in range(world) if other != arguments.idle_rank])
if rank == arguments.idle_rank:
    dist.barrier()
    sys.exit()
model = DistributedDataParallel(MLP(256, 2).to(device), process_group=trainers)
optimizer = torch.optim.AdamW(model.parameters())
log = open(f"{arguments.log}{rank}" if arguments.log != os.devnull else os.devnull, "w")  # noqa: SIM115 - left open
begun = time.perf_counter()
for step in range(1, arguments.steps + 1):
    loss = model(torch.randn(64, 256, device=device)).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    after = f" after {time.perf_counter() - begun:.6f}" if arguments.clock else ""
    if rank == 0:
        print(f"step {step} loss {loss.item():.3f}{after}")
    print(f"step {step}", file=log)
dist.barrier()
if rank == 0:
    print("ended", flush=True)
