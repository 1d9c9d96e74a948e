"""Training steps with more calls of cuDNN: convolutions of half precision, recurrent networks."""

from __future__ import annotations

import torch
from torch import nn

from .workload import Run, phase_ends, workload


@workload
def scaled_convolutions() -> Run:
    """Half precision with a gradient scaler, channels last."""

    def block() -> nn.Module:
        return nn.Sequential(nn.Conv2d(16, 16, 3, padding=1, bias=False), nn.BatchNorm2d(16), nn.ReLU(inplace=True))

    head = (nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 8))
    model = nn.Sequential(*(block() for _ in range(12)), *head).cuda().to(memory_format=torch.channels_last)
    x = torch.randn(2, 16, 8, 8, device="cuda").to(memory_format=torch.channels_last)
    optimizer, scaler = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9), torch.amp.GradScaler("cuda")

    def run() -> None:
        with torch.autocast("cuda", torch.float16):
            loss = model(x).float().sum()
        phase_ends("forward")
        scaler.scale(loss).backward()
        phase_ends("backward")
        scaler.step(optimizer)
        scaler.update()
        phase_ends("then")
        model.zero_grad()
        phase_ends("zero_grad")

    return run


@workload
def recurrent() -> Run:
    """Two layers, which cuDNN runs step by step."""
    model, x = nn.LSTM(256, 256, 2).cuda().bfloat16(), torch.randn(16, 16, 256, device="cuda", dtype=torch.bfloat16)

    def run() -> None:
        loss = model(x)[0].sum()
        phase_ends("forward")
        loss.backward()
        phase_ends("backward")
        model.zero_grad()
        phase_ends("zero_grad")

    return run
