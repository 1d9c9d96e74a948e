"""Runs programs of emu.hostbench on rank 0, where rank 1 begins each of them at once, and 50 ms later.

Prints {program: [[ns of the run, ns until the GPU is idle], ... for both lags]}."""

import json
import os
import time

import torch
import torch.distributed as dist

from emu.hostbench import collectives, distributed, python_work  # noqa: F401  # they register
from emu.hostbench.workload import WORKLOADS

PROGRAMS = (
    "small_reductions",
    "collectives_in_flight",
    "messages",
    "exchanges",
    "layer_collectives",
    "functional_collectives",
    "tensor_parallel",
)
LAG_S = 0.05

rank = int(os.environ["RANK"])
torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
dist.init_process_group("nccl")
runs = {one.name: one.make() for one in WORKLOADS if one.name in PROGRAMS}
found: dict[str, list[list[int]]] = {name: [] for name in runs}
for name, run in runs.items():
    for _ in range(4):
        run()
    for lag_s in (0, LAG_S):
        torch.cuda.synchronize()
        dist.barrier()
        torch.cuda.synchronize()
        if rank == 1:
            time.sleep(lag_s)
        begin = time.perf_counter_ns()
        run()
        took = time.perf_counter_ns() - begin
        torch.cuda.synchronize()
        found[name].append([took, time.perf_counter_ns() - begin])
if rank == 0:
    print("FOUND " + json.dumps(found), flush=True)
dist.destroy_process_group()
