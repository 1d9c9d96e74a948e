"""Phases of free-running and of synchronised steps by the host's clock and by CUDA events, without a profiler.

    python free_phases.py OUT.jsonl NAME ...             # torchrun --nproc-per-node 2 for the d_ ones; jobs of fresh_jobs.py

Real and emulated alike. A line is a rank's job: for free-running steps (`free`) and for those with a synchronisation
before each mark (`sync`), twice: every mark with ms of the host and of the GPU since the first one.
laboratory/rows/free-phases-h100.jsonl has medians over steps of what each phase took, and how far the GPU was behind."""

import json
import os
import sys
import time

import torch
import torch.distributed as dist
from torch import nn

WORLD, RANK = int(os.environ.get("WORLD_SIZE", 1)), int(os.environ.get("RANK", 0))
if WORLD > 1:
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl")

import varied_jobs  # noqa: E402

WARM, FREE, SYNCED = 5, 8, 5
MARKS = []
SYNCHRONISED = [False]


def mark(kind):
    if SYNCHRONISED[0]:
        torch.cuda.synchronize()
    event = torch.cuda.Event(enable_timing=True)
    event.record()
    MARKS.append((kind, time.perf_counter(), event))


def train(model, loss_of, optimizer=None, amp=torch.bfloat16, scaler=False, clip=None):
    """Does what varied_jobs.train does, with marks."""
    trained = [p for p in model.parameters() if p.requires_grad]
    optimizer = optimizer or torch.optim.AdamW(trained, 1e-4)
    scaler = torch.amp.GradScaler("cuda") if scaler else None

    def step():
        mark("begin")
        with torch.autocast("cuda", amp or torch.bfloat16, enabled=amp is not None):
            loss = loss_of()
        mark("forward")
        (scaler.scale(loss) if scaler else loss).backward()
        mark("backward")
        if clip:
            if scaler:
                scaler.unscale_(optimizer)
            nn.utils.clip_grad_norm_(trained, clip)
            mark("clip")
        if scaler:
            scaler.step(optimizer)
            mark("step")
            scaler.update()
            mark("update")
        else:
            optimizer.step()
            mark("step")
        optimizer.zero_grad()
        mark("zero_grad")

    return step


varied_jobs.train = train

import fresh_jobs  # noqa: E402, F401


def marks_of(step, steps, synchronised):
    MARKS.clear()
    SYNCHRONISED[0] = synchronised
    if WORLD > 1:
        dist.barrier()
    torch.cuda.synchronize()
    for _ in range(steps):
        step()
    torch.cuda.synchronize()
    _, host, gpu = MARKS[0]
    return [(kind, round((t - host) * 1e3, 3), round(gpu.elapsed_time(event), 3)) for kind, t, event in MARKS]


for name in sys.argv[2:]:
    torch.manual_seed(0)
    step = varied_jobs.JOBS[name]()
    for _ in range(WARM):
        step()
    told = {"job": name, "world": WORLD, "rank": RANK}
    for turn in range(2):
        told[f"free{turn}"] = marks_of(step, FREE, False)
        told[f"sync{turn}"] = marks_of(step, SYNCED, True)
    with open(f"{sys.argv[1]}.{RANK}" if WORLD > 1 else sys.argv[1], "a") as file:
        file.write(json.dumps(told) + "\n")
    print(f"{name} rank {RANK}: done", flush=True)
    del step
    torch.cuda.empty_cache()
if WORLD > 1:
    dist.destroy_process_group()
