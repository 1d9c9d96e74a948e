"""Trains with DeepSpeed's engine; prints the results of its timers and those of the script's own clock."""

from __future__ import annotations

import json
import sys
import time

import deepspeed
import torch
from torch import nn

STEPS, BATCH, WIDTH = 12, 16384, 4096
breakdown = sys.argv[1:] == ["--breakdown"]


def now() -> float:
    torch.cuda.synchronize()
    return time.perf_counter()


deepspeed.init_distributed()
model = nn.Sequential(*[nn.Linear(WIDTH, WIDTH) for _ in range(8)])
engine, *_ = deepspeed.initialize(
    model=model,
    model_parameters=model.parameters(),
    config={
        "train_micro_batch_size_per_gpu": BATCH,
        "optimizer": {"type": "AdamW", "params": {"torch_adam": True}},
        "bf16": {"enabled": True},
        "zero_optimization": {"stage": 1},
        "steps_per_print": STEPS,
        "wall_clock_breakdown": breakdown,
    },
)
clock = []
for _ in range(STEPS):
    x = torch.randn(BATCH, WIDTH, device=engine.device, dtype=torch.bfloat16)
    at = [now()]
    loss = engine(x).sum()
    at.append(now())
    engine.backward(loss)
    at.append(now())
    engine.step()
    at.append(now())
    clock.append(at)
if engine.global_rank == 0:
    samples = BATCH * torch.distributed.get_world_size()
    last = clock[-1]
    results = {
        "samples": engine.tput_timer.avg_samples_per_sec() / samples,
        "clock": (STEPS - 2) / sum(at[-1] - at[0] for at in clock[2:]),
        "fwd": (last[1] - last[0]) * 1e3,
        "bwd": (last[2] - last[1]) * 1e3,
        "step": (last[3] - last[2]) * 1e3,
    }
    print(json.dumps(results), flush=True)
torch.distributed.destroy_process_group()
