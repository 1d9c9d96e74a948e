"""Trains under Megatron's timers; prints the times that they measure and those of the loop's own clock."""

from __future__ import annotations

import json
import os
import time

import torch
import torch.distributed as dist
from megatron.core.timers import Timers
from torch import nn

torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
dist.init_process_group("nccl")
model = nn.Sequential(*[nn.Linear(4096, 4096) for _ in range(8)]).cuda()
optimizer = torch.optim.AdamW(model.parameters())
timers = Timers(2, "minmax")
elapsed, clock = [], []
for _ in range(6):
    dist.barrier()
    torch.cuda.synchronize()
    began = time.perf_counter()
    timers("step", 0).start(barrier=True)
    model(torch.randn(8192 * (1 + dist.get_rank()), 4096, device="cuda")).sum().backward()
    for parameter in model.parameters():
        dist.all_reduce(parameter.grad)
    optimizer.step()
    optimizer.zero_grad()
    timers("step").stop()
    clock.append(time.perf_counter() - began)
    elapsed.append(timers("step").elapsed())
timers("step", 0).start()
timers("step").stop()
timers.log(["step"], rank=0)
if dist.get_rank() == 0:
    print(json.dumps({"timers": elapsed, "clock": clock}), flush=True)
dist.destroy_process_group()
