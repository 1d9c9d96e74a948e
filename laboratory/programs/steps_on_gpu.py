"""Kernels of training steps of one GPU, in order: real and emulated alike.

    python steps_on_gpu.py OUT.jsonl.gz more_jobs:NAME varied_jobs:NAME train_jobs:NAME ...   # needs the repository on PYTHONPATH

Each job runs 24 steps, so that the GPU is at its power limit if it ever is, then two under torch.profiler. A line is one of those
steps' kernels or library calls: job, us since the first, us, us before it in which the GPU had nothing, signature."""

import gc
import gzip
import json
import os
import subprocess
import sys
import tempfile
from types import SimpleNamespace

import torch
from torch.profiler import ProfilerActivity, profile

from profiles.timings import trace

WARM, PROFILED = 24, 2
HERE = os.path.dirname(os.path.abspath(__file__))


def traced(step):
    for _ in range(WARM):
        step()
    torch.cuda.synchronize()
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA], record_shapes=True) as found:
        for _ in range(PROFILED):
            step()
        torch.cuda.synchronize()
    path = os.path.join(tempfile.gettempdir(), f"steps.{os.getpid()}.json")
    found.export_chrome_trace(path)
    return path


def of_train_jobs(name):
    """Its own --trace: one step."""
    folder = tempfile.mkdtemp()
    told = [sys.executable, os.path.join(HERE, "train_jobs.py"), "--jobs", name, "--trace", folder, "--warm", "8"]
    subprocess.run(told, check=True)
    return os.path.join(folder, f"{name}.r0.json")


def path_of(module, name):
    if module == "train_jobs":
        return of_train_jobs(name)
    sys.path.insert(0, HERE)
    jobs = __import__(module)
    jobs.A = SimpleNamespace()
    torch.manual_seed(0)
    made = jobs.JOBS[name]
    return traced(made[1]() if isinstance(made, tuple) else made())


def main():
    out, *jobs = sys.argv[1:]
    for job in jobs:
        module, name = job.split(":")
        path = path_of(module, name)
        gc.collect()
        torch.cuda.empty_cache()
        with open(path) as file:
            events = json.load(file)["traceEvents"]
        os.unlink(path)
        works = trace.works(events)
        first, end = works[0].at_us, works[0].at_us
        with gzip.open(out, "at") as file:
            for one in works:
                row = (
                    name,
                    round(one.at_us - first, 2),
                    round(one.for_us, 3),
                    round(max(one.at_us - end, 0.0), 2),
                    one.signature,
                )
                file.write(json.dumps(row) + "\n")
                end = max(end, one.at_us + one.for_us)
        print(name, len(works), "works,", round((end - first) / 1e3, 2), "ms", flush=True)


if __name__ == "__main__":
    main()
