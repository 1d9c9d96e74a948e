"""torch.profiler in the script: it sees the ops of the host; the emulated GPU records no activity of its own."""

from __future__ import annotations

import sys

import torch
from torch.profiler import ProfilerActivity, profile, schedule

model = torch.nn.Linear(256, 256).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
plan = schedule(wait=3, warmup=1, active=1, repeat=1)
with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA], schedule=plan, record_shapes=True) as profiler:
    for _ in range(12):
        model(torch.randn(32, 256, device="cuda")).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
        torch.cuda.synchronize()
        profiler.step()
names = {event.key for event in profiler.key_averages()}
assert {"aten::linear", "Optimizer.step#SGD.step"} <= names, names
profiler.export_chrome_trace(sys.argv[1])
print("PASSED")
