"""Does `advise` find what an expert would change? Jobs with one slow habit each, for which the best change is known.

`python laboratory/programs/advice_cases.py OUT.jsonl [NAME ...]` writes each script, records it, asks for advice with
``--try auto``, and prints a line of JSON with everything that was tried; `--table OUT.jsonl` prints the table. A case
counts as found if the known change is the best of all single changes of the script, or equal to the best one within
half a per cent. Other batches train another model, so that they count only where they are the known change.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

import phantora_async

EQUAL = 0.005
JOB = """\
import argparse
import os

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--batch-size", type=int, default=4)
parser.add_argument("--vocab-size", type=int, default=32000)
parser.add_argument("--layers", type=int, default=4)
given = parser.parse_args()
WIDTH, SEQ = 1024, 1024


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.n1, self.n2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.q, self.k, self.v, self.o = (nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(4))
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH, bias=False), nn.Linear(4 * WIDTH, WIDTH, bias=False)

    def forward(self, x):
        batch, seq, _ = x.shape
        h = self.n1(x)
        q, k, v = (part(h).view(batch, seq, -1, 64).transpose(1, 2) for part in (self.q, self.k, self.v))
        h = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.o(h.transpose(1, 2).reshape(batch, seq, -1))
        u = self.up(self.n2(x))
        u = F.gelu(u, approximate="tanh")
        return x + self.down(u)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding, self.norm = nn.Embedding(given.vocab_size, WIDTH), nn.LayerNorm(WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(given.layers))
        self.head = nn.Linear(WIDTH, given.vocab_size, bias=False)

    def forward(self, tokens):
        x = self.embedding(tokens)
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


dist.init_process_group("nccl")
torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
torch.manual_seed(0)
model = Model().cuda().bfloat16()
model = nn.parallel.DistributedDataParallel(model)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)


def loss_of():
    tokens = torch.randint(given.vocab_size, (given.batch_size, SEQ + 1), device="cuda")
    return F.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())


for _ in range(5):
    loss = loss_of()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
dist.destroy_process_group()
"""
DDP = "model = nn.parallel.DistributedDataParallel(model)\n"
BF16 = "model = Model().cuda().bfloat16()"
OPTIMIZER = "lr=1e-4, fused=True"
STEP = "    loss.backward()\n"
SHARDS = """\
from torch.distributed.fsdp import fully_shard

for block in model.blocks:
    fully_shard(block)
fully_shard(model)
"""
IN_FP32 = """\
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

kept = {
    "mp_policy": MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32),
    "reshard_after_forward": False,
}
for block in model.blocks:
    fully_shard(block, **kept)
fully_shard(model, **kept)
"""
TP = """\
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

if given.tp == 1:
    model = nn.parallel.DistributedDataParallel(model)
else:
    mesh = init_device_mesh("cuda", (given.tp,), mesh_dim_names=("tp",))
    columns = {name: ColwiseParallel() for name in ("q", "k", "v", "up")}
    for block in model.blocks:
        parallelize_module(block, mesh, columns | {name: RowwiseParallel() for name in ("o", "down")})
"""
REDUCED = """\
    loss.backward()
    for parameter in model.parameters():
        dist.all_reduce(parameter.grad, op=dist.ReduceOp.AVG)
"""
NORMS = """\
    for parameter in model.parameters():
        parameter.norm().item()
        parameter.grad.norm().item()
"""
PIECES = "u = torch.cat([t * 0.5 * (1 + torch.tanh(0.79788 * (t + 0.044715 * t**3))) for t in u.chunk(16, -1)], -1)"
LOSS = "    return F.cross_entropy("
AUTOCAST = '    with torch.autocast("cuda", torch.bfloat16):\n        return F.cross_entropy('


class Case(NamedTuple):
    arguments: str
    options: dict[str, Any]
    edits: tuple[tuple[str, str], ...]
    """The texts of the job that are replaced, and by what."""
    known: tuple[str, ...]
    """The beginnings of the texts of changes that are right."""
    why: str


H100 = {"world_size": 2, "cluster": "dgx-h100"}
PCIE = {"world_size": 2, "cluster": "pcie-l40s"}
APART = {"nnodes": 2, "nproc_per_node": 2, "cluster": "p4d"}
CASES = {
    "a batch of 1": Case(
        "--batch-size 1", H100, (), ("--batch-size 2",), "the host binds: twice the work takes the same time"
    ),
    "recomputation that is not needed": Case(
        "--batch-size 8",
        H100,
        (
            ("x = block(x)", "x = checkpoint(block, x, use_reentrant=False)"),
            ("from torch import nn\n", "from torch import nn\nfrom torch.utils.checkpoint import checkpoint\n"),
        ),
        ("no recomputation",),
        "the forward pass is done twice",
    ),
    "buckets of 0.1 MB": Case(
        "",
        H100,
        (("DistributedDataParallel(model)", "DistributedDataParallel(model, bucket_cap_mb=0.1)"),),
        ("DistributedDataParallel(bucket_cap_mb=",),
        "an all-reduce for almost every parameter",
    ),
    "FP32": Case(
        "",
        H100,
        ((BF16, "model = Model().cuda()"),),
        ("autocast to bf16",),
        "FP32 products take 15 times as long as bf16 ones",
    ),
    "GELU in 16 pieces": Case(
        "",
        H100,
        (('u = F.gelu(u, approximate="tanh")', PIECES),),
        ("torch.compile",),
        "144 element-wise kernels in each block, which a compiler joins",
    ),
    "all-reduces after backward": Case(
        "--batch-size 8",
        PCIE,
        ((DDP, ""), (STEP, REDUCED)),
        ("all-reduces of gradients that begin",),
        "links bind, and nothing hides the all-reduces",
    ),
    "TP over two servers": Case(
        "--tp 4",
        APART,
        (
            (DDP, TP),
            ("given = ", 'parser.add_argument("--tp", type=int, default=1)\ngiven = '),
            (OPTIMIZER, "lr=1e-4, foreach=False"),
        ),
        ("--tp 1",),
        "activations cross the network four times in each block",
    ),
    "FSDP2 of a small model": Case(
        "",
        PCIE,
        ((DDP, SHARDS),),
        ("parameters that stay gathered", "replicas in place of shards"),
        "links bind, and a third of what they carry is parameters that are gathered a second time",
    ),
    "micro batches that are all reduced": Case(
        "",
        PCIE,
        ((STEP, "    loss.backward()\n    for _ in range(3):\n        loss_of().backward()\n"),),
        ("no_sync()",),
        "four reductions where one is enough",
    ),
    "norms that are logged": Case(
        "--batch-size 8",
        H100,
        ((STEP, STEP + NORMS),),
        ("no waits for the GPU",),
        "the host reads two numbers for each parameter, and the GPU is idle meanwhile",
    ),
    "FSDP2 over two servers": Case(
        "--layers 8",
        APART,
        ((DDP, SHARDS),),
        ("shards inside each server", "replicas in place of shards"),
        "each gather crosses the network",
    ),
    "an optimizer that loops": Case(
        "",
        H100,
        ((OPTIMIZER, "lr=1e-4, foreach=False"),),
        ("a fused optimizer",),
        "a dozen launches for each parameter",
    ),
    "a vocabulary of 50,257": Case(
        "--vocab-size 50257", H100, (), ("--vocab-size 50304",), "products of odd sizes do not use tensor cores well"
    ),
    "offloading that is not needed": Case(
        "",
        H100,
        (
            (
                DDP,
                SHARDS.replace("import fully_shard", "import CPUOffloadPolicy, fully_shard")
                .replace("block)\n", "block, offload_policy=CPUOffloadPolicy())\n")
                .replace("fully_shard(model)", "fully_shard(model, offload_policy=CPUOffloadPolicy())"),
            ),
        ),
        ("parameters and optimizer states on the GPU",),
        "the optimizer works on the CPU, and everything fits on the GPU",
    ),
    "gradients that are sent as FP32": Case(
        "",
        PCIE,
        ((BF16, "model = Model().cuda()"), (LOSS, AUTOCAST)),
        ("gradients that DistributedDataParallel sends as bf16",),
        "links bind: half of the bytes are enough",
    ),
    "shards whose gradients are reduced as FP32": Case(
        "",
        PCIE,
        ((BF16, "model = Model().cuda()"), (DDP, IN_FP32)),
        ("gradients that are reduced as bf16",),
        "links bind: two thirds of the bytes are gradients, and half of these are enough",
    ),
}
OF_MACHINE = ("NCCL_", "NVLink", "network cards", "a host that", "together: ")
"""The beginnings of lines that are no single change of the script."""


def script(name: str) -> str:
    text = JOB
    for before, after in CASES[name].edits:
        if text.count(before) != 1:
            raise ValueError(f"{name}: {before!r} is there {text.count(before)} times")
        text = text.replace(before, after)
    return text


def tried(name: str) -> dict[str, Any]:
    case = CASES[name]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "train.py")
        path.write_text(script(name))
        phantora_async.run(
            str(path),
            case.arguments.split(),
            **case.options,
            steps=5,
            record=f"{folder}/rec",
            run_dir=f"{folder}/run",
            show_ranks="none",
            progress=False,
        )
        done = subprocess.run(
            [sys.executable, "-m", "phantora_async", "advise", f"{folder}/rec", "--try", "auto", "--json"],
            cwd=folder,
            stdout=subprocess.PIPE,
            check=True,
        )
    return {"case": name, **json.loads(done.stdout)}


def judged(row: dict[str, Any]) -> tuple[dict[str, Any] | None, dict[str, Any] | None]:
    """The best single change of the script that leaves the batch as it is, and the known one."""
    known = [one for one in row["tries"] if one["what"].startswith(CASES[row["case"]].known)]
    others = [one for one in row["tries"] if not one["what"].startswith((*OF_MACHINE, "--batch-size"))]
    own = [*others, *(one for one in known if one not in others)]
    return min(own, key=lambda one: one["change"], default=None), min(
        known, key=lambda one: one["change"], default=None
    )


def changed(one: dict[str, Any] | None) -> str:
    return "" if one is None else f"{one['change']:+.1%}"


def table(path: Path) -> None:
    found = 0
    print("| job | why it is slow | known best change | step | with it | best that `advise` names | all together |")
    print("| --- | --- | --- | ---: | ---: | --- | ---: |")
    rows = {row["case"]: row for row in map(json.loads, path.read_text().splitlines())}
    for name, row in rows.items():
        best, known = judged(row)
        right = best is not None and known is not None and known["change"] <= best["change"] + EQUAL
        found += right
        together = next((one for one in row["tries"] if one["what"].startswith("together: ")), None)
        cells = [
            name,
            CASES[name].why,
            known["what"] if known else CASES[name].known[0],
            f"{row['step_s'] * 1e3:.2f} ms",
            changed(known),
            "the same" if right or best is None else f"{best['what']} {changed(best)}",
            changed(together),
        ]
        print(f"| {' | '.join(cells)} |")
    print(f"{found} of {len(rows)} found", file=sys.stderr)


def main() -> None:
    if sys.argv[1] == "--table":
        table(Path(sys.argv[2]))
        return
    with Path(sys.argv[1]).open("a") as out:
        for name in sys.argv[2:] or CASES:
            print(json.dumps(tried(name)), file=out, flush=True)


if __name__ == "__main__":
    main()
