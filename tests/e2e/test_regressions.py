"""Twelve regressions of a training script, each by one edit: `check` catches those that cost more than 0.2 % and names
them. The unchanged script is as its baseline to the last digit.
"""

from __future__ import annotations

import json

import pytest

import phantora_async
from phantora_async.gate import baseline
from phantora_async.gate.checking import Judged

pytestmark = [pytest.mark.torch, pytest.mark.thorough, pytest.mark.timeout(1800)]
JOB = """\
import os
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import bf16_compress_hook
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint

dist.init_process_group("nccl")
torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))

class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(1024), nn.Linear(1024, 4096), nn.Linear(4096, 1024)

    def forward(self, x):
        y = self.norm(x)
        y = nn.functional.gelu(self.up(y))
        return x + self.down(y)

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(Block() for _ in range(4))

    def forward(self, x):
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False)
        return x

def in_double(state, bucket):
    buffer = bucket.buffer()
    done = dist.all_reduce(buffer.double(), async_op=True).get_future()
    return done.then(lambda future: buffer.copy_(future.value()[0]))

torch.manual_seed(0)
model = Model().cuda()
ddp = DistributedDataParallel(model, bucket_cap_mb=25)
ddp.register_comm_hook(None, bf16_compress_hook)
optimizer = torch.optim.AdamW(ddp.parameters(), lr=1e-4)
teacher = Block().cuda()
length, padded = 450, 512

def loss_of(x):
    with torch.autocast("cuda", torch.bfloat16):
        out = ddp(x)
        with torch.no_grad():
            target = teacher(x)
        return (out.float() - target.float()).pow(2).mean()

data = torch.zeros(16, padded, 1024).pin_memory()  # a loader fills it again for each step
for step in range(5):
    for micro in range(2):
        x = data.to("cuda", non_blocking=True)
        if micro == 0:
            with ddp.no_sync():
                loss_of(x).backward()
        else:
            loss = loss_of(x)
            loss.backward()
    optimizer.step()
    optimizer.zero_grad()
torch.cuda.synchronize()
"""
EDITS: dict[str, tuple[str, str, str]] = {
    "no-grad": ("with torch.no_grad():", "if True:", "activations"),
    "item": ("loss = loss_of(x)\n", "loss = loss_of(x)\n            print(loss.item())\n", "loss.item()"),
    "buckets": ("bucket_cap_mb=25", "bucket_cap_mb=12", "all_reduce"),
    "autocast": (
        "y = nn.functional.gelu(self.up(y))",
        "with torch.autocast('cuda', enabled=False):\n            y = nn.functional.gelu(self.up(y.float()))",
        "gemm f32",
    ),
    "clone": ("y = self.norm(x)", "y = self.norm(x.clone())", "aten::clone"),
    "no-sync": ("with ddp.no_sync():", "if True:", "all_reduce"),
    "foreach": ("lr=1e-4)", "lr=1e-4, foreach=False)", "optimizer"),
    "padding": ("padded = 450, 512", "padded = 450, 640", "gemm"),
    "checkpoint": ("x = checkpoint(block, x, use_reentrant=False)", "x = block(x)", "activations"),
    "all-reduce": (
        "    optimizer.step()",
        "    dist.all_reduce(torch.ones(1 << 20, device='cuda'))\n    optimizer.step()",
        "all_reduce 4,194,304 bytes",
    ),
    "pin": (".pin_memory()", "", "pageable"),
    "reduce-dtype": ("None, bf16_compress_hook", "None, in_double", "f64"),
}
"""By name: what is replaced by what, and a word of the cause that `check` tells."""
UNCHANGED = ("unchanged-1", "unchanged-2")
HEAD = """\
[defaults]
world_size = 2
cluster = "dgx-h100"
steps = 5
fail_if = "step > +0.2%, memory > +0.2%, allocated > +0.2%"
"""


@pytest.fixture(scope="module")
def judged(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Judged]:
    """The verdicts by name, each against the baseline of the script without an edit."""
    folder = tmp_path_factory.mktemp("regressions")
    scripts = {"base": JOB} | dict.fromkeys(UNCHANGED, JOB)
    for name, (before, after, _) in EDITS.items():
        assert JOB.count(before) == 1, name
        scripts[name] = JOB.replace(before, after)
    for name, text in scripts.items():
        (folder / name).mkdir()
        (folder / name / "train.py").write_text(text)
    jobs = folder / "budgets.toml"
    jobs.write_text(HEAD + "".join(f'[job.{name}]\nscript = "{name}/train.py"\n' for name in scripts))
    phantora_async.check(jobs, jobs=["base"], update=True, run_dir=folder / "base")
    path = folder / "budgets.baseline.json"
    stored = baseline.read(path)["base"]
    baseline.write(path, dict.fromkeys(scripts, stored))
    found = phantora_async.check(jobs, jobs=[*UNCHANGED, *EDITS], parallel=2, run_dir=folder / "runs", told=print)
    print(json.dumps(found.document(), indent=1))
    return {one.job.name: one for one in found.jobs}


@pytest.mark.parametrize("name", UNCHANGED)
def test_an_unchanged_script_is_its_baseline(judged: dict[str, Judged], name: str) -> None:
    one = judged[name]
    assert one.good, one.reason
    assert [row.value for row in one.rows] == [row.limit for row in one.rows]


@pytest.mark.parametrize("name", EDITS)
def test_a_regression_is_caught_and_named(judged: dict[str, Judged], name: str) -> None:
    one, word = judged[name], EDITS[name][2]
    assert not one.failure
    worst = max(row.value / row.limit - 1 for row in one.rows if row.value is not None)
    assert one.good == (worst <= 0.002)
    assert not one.good, f"{worst:+.2%}: the edit costs more than 0.2 %"
    assert word in " ".join(one.causes), one.causes
