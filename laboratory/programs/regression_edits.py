"""Does `check` catch and name a regression that one edit of a script makes? Eighteen edits of a GPT.

`python laboratory/programs/regression_edits.py [NAME ...]` stores the baseline of the script, checks it again with one
edit at a time against rules of +0.2 %, and prints a row of Markdown for each: how step and memory have changed, whether
the job fails, and the causes that its line names. `unchanged` runs the script without an edit: its figures have to be
the baseline's to the last digit. `tests/e2e/test_regressions.py` has twelve more edits of another script.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import phantora_async
from phantora_async.gate import baseline
from phantora_async.gate.checking import Judged

JOB = """\
import os
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel

WORDS, WIDTH, SEQ, BATCH = 32000, 1024, 1024, 4

class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.n1, self.n2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):
        h = self.n1(x)
        q, k, v = (t.view(BATCH, SEQ, 16, 64).transpose(1, 2) for t in self.qkv(h).chunk(3, -1))
        h = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(h.transpose(1, 2).reshape(BATCH, SEQ, WIDTH))
        h = self.up(self.n2(x))
        h = F.gelu(h)
        return x + self.down(h)

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("table", torch.zeros(1 << 22))
        self.embedding, self.norm = nn.Embedding(WORDS, WIDTH), nn.LayerNorm(WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(4))
        self.head = nn.Linear(WIDTH, WORDS, bias=False)

    def forward(self, tokens):
        x = self.embedding(tokens)
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))

dist.init_process_group("nccl")
torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
torch.manual_seed(0)
model = DistributedDataParallel(
    Model().cuda().bfloat16(), broadcast_buffers=False, gradient_as_bucket_view=True
)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
mean = [one.detach().clone() for one in model.parameters()]
kept = []
for step in range(6):
    tokens = torch.randint(WORDS, (BATCH, SEQ + 1), device="cuda")
    logits = model(tokens[:, :-1])
    loss = F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad()
torch.cuda.synchronize()
"""
ATTENTION = "h = F.scaled_dot_product_attention(q, k, v, is_causal=True)"
CLIPPED = "nn.utils.clip_grad_norm_(model.parameters(), 1.0)"
ZEROED = "    optimizer.zero_grad()"
EDITS: dict[str, tuple[str, str, str, str]] = {
    "attention in pieces": ("kernel", ATTENTION, "h = torch.softmax(q @ k.transpose(-1, -2) / 8, -1) @ v", "softmax"),
    "a vocabulary of 32,001": (
        "shape",
        "WORDS, WIDTH, SEQ, BATCH = 32000",
        "WORDS, WIDTH, SEQ, BATCH = 32001",
        "unaligned",
    ),
    "the loop optimizer": ("optimizer", "fused=True", "foreach=False", "optimizer"),
    "gradients that are set to zero": ("optimizer", ZEROED, "    optimizer.zero_grad(set_to_none=False)", "aten::add_"),
    "clipping in a loop": (
        "optimizer",
        CLIPPED,
        "nn.utils.clip_grad_norm_(model.parameters(), 1.0, foreach=False)",
        "host-bound",
    ),
    "a synchronize in each step": (
        "host",
        ZEROED,
        ZEROED + "\n    torch.cuda.synchronize()",
        "torch.cuda.synchronize()",
    ),
    "predictions copied to the host": (
        "data",
        ZEROED,
        ZEROED + "\n    logits.argmax(-1).cpu()",
        "logits.argmax(-1).cpu()",
    ),
    "empty_cache in each step": ("memory", ZEROED, ZEROED + "\n    torch.cuda.empty_cache()", "host-bound"),
    "GELU in FP32": ("precision", "h = F.gelu(h)", "h = F.gelu(h.float()).to(h.dtype)", "element-wise"),
    "outputs that are kept": ("memory", ZEROED, ZEROED + "\n    kept.append(logits)", "aten::mm"),
    "metrics gathered in each step": (
        "communication",
        ZEROED,
        ZEROED + "\n    dist.all_gather([torch.empty_like(logits) for _ in range(2)], logits.detach())",
        "all_gather",
    ),
    "a barrier in each step": ("communication", ZEROED, ZEROED + "\n    dist.barrier()", "dist.barrier()"),
    "buffers that are broadcast": ("communication", "broadcast_buffers=False, ", "", "broadcast"),
    "find_unused_parameters": (
        "communication",
        "broadcast_buffers=False",
        "broadcast_buffers=False, find_unused_parameters=True",
        "all_reduce",
    ),
    "a mean of the parameters": (
        "kernel",
        ZEROED,
        ZEROED + "\n    torch._foreach_lerp_(mean, list(model.parameters()), 0.01)",
        "optimizer",
    ),
    "gradients beside their buckets": ("memory", ", gradient_as_bucket_view=True", "", "copy d2d"),
    "dropout": ("kernel", "h = F.gelu(h)", "h = F.dropout(F.gelu(h), 0.1)", "dropout"),
    "a second forward pass": (
        "graph",
        "    loss.backward()",
        "    model.module(tokens[:, :-1])\n    loss.backward()",
        "gemm bf16",
    ),
}
"""By name: its kind, what is replaced by what, and a word of the cause that `check` has to name."""
UNCHANGED = "unchanged"
HEAD = """\
[defaults]
world_size = 2
cluster = "dgx-h100"
steps = 6
fail_if = "step > +0.2%, memory > +0.2%, allocated > +0.2%"
"""
LIMIT = 0.002


def script(name: str) -> str:
    if name not in EDITS:
        return JOB
    _, before, after, _ = EDITS[name]
    if JOB.count(before) != 1:
        raise ValueError(f"{name}: {before!r} is there {JOB.count(before)} times")
    return JOB.replace(before, after)


def row(name: str, one: Judged) -> str:
    changed = {each.figure.name: each.value / each.limit - 1 for each in one.rows if each.value is not None}
    causes = "; ".join(one.causes).replace("|", "/")
    if name == UNCHANGED:
        same = all(each.value == each.limit for each in one.rows)
        verdict = "equal" if same and one.good else "FALSE ALARM"
    elif one.failure:
        verdict = one.failure.splitlines()[0]
    elif max(changed.values(), default=0.0) <= LIMIT:
        verdict = "no effect above 0.2 %" if one.good else "FALSE ALARM"
    else:
        verdict = "MISSED" if one.good else "named" if EDITS[name][3] in causes else "caught, not named"
    figures = " | ".join(f"{changed.get(key, 0.0):+.2%}" for key in ("step", "memory", "allocated"))
    return f"| {EDITS[name][0] if name in EDITS else ''} | {name} | {figures} | {verdict} | {causes} |"


def main() -> None:
    names = sys.argv[1:] or [UNCHANGED, *EDITS]
    with tempfile.TemporaryDirectory(prefix="phantora-regressions-") as place:
        folder = Path(place)
        numbered = {f"job-{number}": name for number, name in enumerate(names)}
        for job, name in {"base": UNCHANGED, **numbered}.items():
            (folder / job).mkdir()
            (folder / job / "train.py").write_text(script(name))
        jobs = folder / "budgets.toml"
        jobs.write_text(HEAD + "".join(f'[job.{job}]\nscript = "{job}/train.py"\n' for job in ["base", *numbered]))
        phantora_async.check(jobs, jobs=["base"], update=True, run_dir=folder / "runs-base")
        kept = folder / "budgets.baseline.json"
        baseline.write(kept, dict.fromkeys(numbered, baseline.read(kept)["base"]))
        print("| kind | edit | step | reserved | allocated | | what the line names |", flush=True)
        print("| --- | --- | ---: | ---: | ---: | --- | --- |", flush=True)
        for job, name in numbered.items():
            (one,) = phantora_async.check(jobs, jobs=[job], run_dir=folder / f"runs-{job}").jobs
            print(row(name, one), flush=True)


if __name__ == "__main__":
    main()
