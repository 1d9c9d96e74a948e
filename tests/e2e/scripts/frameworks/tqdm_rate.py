"""Trains under a progress bar; prints the bar's rate and that of the loop's own clock."""

from __future__ import annotations

import json
import time

import torch
from torch import nn
from tqdm import tqdm

STEPS = 40
model = nn.Sequential(*[nn.Linear(4096, 4096) for _ in range(8)]).cuda()
optimizer = torch.optim.AdamW(model.parameters())


def step() -> None:
    model(torch.randn(2048, 4096, device="cuda")).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
    torch.cuda.synchronize()


for _ in range(3):
    step()
with tqdm(total=STEPS) as bar:
    began = time.perf_counter()
    for _ in range(STEPS):
        step()
        bar.update()
    rate = STEPS / (time.perf_counter() - began)
    known = bar.format_dict
    rates = {"rate": known["rate"], "average": known["n"] / known["elapsed"], "clock": rate}
print(json.dumps(rates), flush=True)
