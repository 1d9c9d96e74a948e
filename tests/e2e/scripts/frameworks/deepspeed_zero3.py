"""ZeRO-3 of DeepSpeed's engine: three steps of a small model."""

from __future__ import annotations

import deepspeed
import torch
from torch import nn

WIDTH, BATCH = 512, 256

deepspeed.init_distributed()
torch.manual_seed(1)
model = nn.Sequential(
    *[nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.ReLU(), nn.Linear(4 * WIDTH, WIDTH)) for _ in "ab"]
)
engine, *_ = deepspeed.initialize(
    model=model,
    model_parameters=model.parameters(),
    config={
        "train_micro_batch_size_per_gpu": BATCH,
        "optimizer": {"type": "AdamW", "params": {"torch_adam": True}},
        "bf16": {"enabled": True},
        "zero_optimization": {"stage": 3},
    },
)
for _ in range(3):
    x = torch.randn(BATCH, WIDTH, device=engine.device, dtype=torch.bfloat16)
    engine.backward(engine(x).float().square().mean())
    engine.step()
torch.distributed.destroy_process_group()
