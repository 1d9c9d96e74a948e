"""Does `check` find what has become one per cent worse, and is it quiet when nothing has changed?

`python -m tests.bench.regressions [--regressions 20] [--unchanged 100]` stores the baseline of a job on two GPUs and
checks it again with one change at a time: a seed chooses what becomes worse (memory or time), by one per cent, and in
which layer and phase of the step. Each check is a process of its own. It prints a line for each.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

LAYERS = 6
PHASES = ("forward", "backward", "optimizer")
JOB = """
import json, os
import torch, torch.distributed as dist
from torch import nn

change = json.loads(os.environ.get("CHANGE", "{}"))
dist.init_process_group("nccl")
torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
kept = torch.empty(change.get("kept_nbytes", 0), dtype=torch.uint8, device="cuda")
room = torch.empty(1 << 26, device="cuda")  # also where nothing is worse, so that time alone becomes so
extra = room[: change.get("touched_nbytes", 0) // 4]

class Layer(nn.Module):
    def __init__(self, number):
        super().__init__()
        self.number, self.up, self.down = number, nn.Linear(2048, 8192), nn.Linear(8192, 2048)

    def forward(self, x):
        worse("forward", self.number)
        x.register_hook(lambda grad: worse("backward", self.number))
        return x + self.down(torch.relu(self.up(x)))

def worse(phase, layer):
    if extra.numel() and phase == change["phase"] and layer == change["layer"]:
        extra.mul_(2)

model = nn.parallel.DistributedDataParallel(nn.Sequential(*(Layer(number) for number in range(6))).cuda().bfloat16())
optimizer = torch.optim.AdamW(model.parameters())
for step in range(5):
    x = torch.randn(4096, 2048, device="cuda", dtype=torch.bfloat16, requires_grad=True)
    model(x).square().mean().backward()
    worse("optimizer", change.get("layer"))
    optimizer.step()
    optimizer.zero_grad()
"""
BUDGETS = """
[job.small]
script = "job.py"
world_size = 2
cluster = "dgx-h100"
steps = 5
max_memory = "80GB"
fail_if = "step > +0.5%, allocated > +0.5%"
"""


def check(folder: Path, change: dict[str, Any], *more: str) -> tuple[int, dict[str, float]]:
    """Returns the exit code, and the job's figures."""
    command = [sys.executable, "-m", "phantora_async", "check", "budgets.toml", "--json", *more]
    path = os.pathsep.join([os.getcwd(), os.environ.get("PYTHONPATH", "")])
    environment = os.environ | {"CHANGE": json.dumps(change), "PYTHONPATH": path}
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder, env=environment)
    if done.returncode not in (0, 1):
        sys.exit(done.stderr)
    return done.returncode, json.loads(done.stdout)["jobs"][0]["figures"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--regressions", type=int, default=20)
    parser.add_argument("--unchanged", type=int, default=100)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="phantora-regressions-") as name:
        folder = Path(name)
        (folder / "job.py").write_text(JOB)
        (folder / "budgets.toml").write_text(BUDGETS)
        _, base = check(folder, {}, "--update")
        # How long it takes to touch so many bytes: what decides how many are one per cent of a step.
        probe = {"phase": "optimizer", "layer": 0, "touched_nbytes": 1 << 28}
        _, slower = check(folder, probe)
        per_byte = (slower["step"] - base["step"]) / probe["touched_nbytes"]  # type: ignore[operator]
        caught = alarms = 0
        for seed in range(given.regressions):
            chance = random.Random(seed)
            change: dict[str, Any] = {"phase": chance.choice(PHASES), "layer": chance.randrange(LAYERS)}
            if chance.random() < 0.5:
                change = {"kept_nbytes": round(0.01 * base["allocated"])}
            else:
                change["touched_nbytes"] = round(0.01 * base["step"] / per_byte)
            code, figures = check(folder, change)
            caught += code
            changed = {key: f"{figures[key] / base[key] - 1:+.3%}" for key in ("step", "allocated")}
            print(f"seed {seed}: {'caught' if code else 'MISSED'} {changed} {change}", flush=True)
        for number in range(given.unchanged):
            code, figures = check(folder, {})
            alarms += code
            if code or figures != base:
                print(f"unchanged {number}: exit code {code}, {figures} in place of {base}", flush=True)
        print(f"{caught} of {given.regressions} regressions caught, {alarms} false alarms in {given.unchanged} runs")


if __name__ == "__main__":
    main()
