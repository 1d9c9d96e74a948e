"""torch.profiler in the script: ops of the host and kernels of the emulated GPU, in virtual time. Memory snapshots."""

from __future__ import annotations

import json
import pickle
import sys
from pathlib import Path

import torch
from torch.cuda import _memory_viz
from torch.profiler import ProfilerActivity, profile, record_function, schedule

pictures = torch.nn.Conv2d(3, 8, 3).cuda()
model = torch.nn.Sequential(*[torch.nn.Linear(1024, 1024) for _ in range(3)]).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
plan = schedule(wait=3, warmup=1, active=2, repeat=1)
torch.cuda.memory._record_memory_history()
with profile(
    activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA],
    schedule=plan,
    record_shapes=True,
    profile_memory=True,
    with_stack=True,
) as profiler:
    for _ in range(12):
        with record_function("forward of the model"):
            loss = model(torch.randn(256, 1024, device="cuda")).sum()
        loss.backward()
        pictures(torch.randn(2, 3, 8, 8, device="cuda")).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
        torch.cuda.synchronize()
        profiler.step()
keys = {event.key: event for event in profiler.key_averages()}
assert {"aten::linear", "Optimizer.step#SGD.step", "forward of the model"} <= set(keys), sorted(keys)
assert keys["aten::addmm"].device_time_total > 0
assert any("multi_tensor_apply_kernel" in key for key in keys), sorted(keys)
profiler.export_chrome_trace(sys.argv[1])
events = json.loads(Path(sys.argv[1]).read_text())["traceEvents"]
complete = [event for event in events if event["ph"] == "X"]
kernels = [event for event in complete if event["cat"] == "kernel"]
calls = {e["args"]["correlation"]: e for e in complete if e["cat"] in ("cuda_runtime", "cuda_driver")}
ops = {event["args"]["External id"]: event for event in complete if event["cat"] == "cpu_op"}
assert len(kernels) > 20, len(kernels)
names = {call["name"] for call in calls.values()}
assert {"cudaLaunchKernel", "cudaMemsetAsync", "cudaDeviceSynchronize", "cuLaunchKernelEx"} >= names, names
assert "cudaLaunchKernel" in names, names
for kernel in kernels:
    call = calls[kernel["args"]["correlation"]]
    op = ops[kernel["args"]["External id"]]
    assert op["ts"] <= call["ts"] <= kernel["ts"], (op, call, kernel)
    assert call["ts"] + call["dur"] <= op["ts"] + op["dur"] + 0.002, (op, call)
steps = [event for event in complete if event["name"].startswith("ProfilerStep#") and event["cat"] == "user_annotation"]
assert len(steps) == 2, steps
for step in steps:
    assert 100 < step["dur"] < 100_000, step  # microseconds of virtual time

snapshot = torch.cuda.memory._snapshot()
assert sum(len(trace) for trace in snapshot["device_traces"]) > 50
assert any(frame["filename"] == __file__ for entry in snapshot["device_traces"][0] for frame in entry["frames"])
torch.cuda.memory._dump_snapshot(sys.argv[2])
with Path(sys.argv[2]).open("rb") as dumped:
    assert "<html>" in _memory_viz.trace_plot(pickle.load(dumped)).lower()
print("PASSED", " ".join(f"{step['dur']:.3f}" for step in steps))
