"""`phantora-async profile SCRIPT` on a real GPU."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

import profiles
from phantora_async import cli

torch = pytest.importorskip("torch")
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="PyTorch sees no GPU"),
]
TRAIN = """
import os, sys
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

dist.init_process_group("nccl")
torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
mesh = init_device_mesh("cuda", (2, 2), mesh_dim_names=("dp", "tp"))
torch.manual_seed(0)
blocks = [nn.Sequential(nn.Linear(1024, 4096), nn.GELU(), nn.Linear(4096, 1024)) for _ in range(3)]
model = nn.Sequential(*blocks).cuda()
for block in model:
    parallelize_module(block, mesh["tp"], {"0": ColwiseParallel(), "2": RowwiseParallel()})
    fully_shard(block, mesh=mesh["dp"])
fully_shard(model, mesh=mesh["dp"])
optimizer = torch.optim.AdamW(model.parameters(), fused=True)
for step in range(int(sys.argv[1])):
    loss = model(torch.randn(512, 1024, device="cuda")).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
assert torch.isfinite(loss)
"""


def test_one_rank_of_four(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    script, table = tmp_path / "train.py", tmp_path / "t.times"
    script.write_text(TRAIN)
    options = ["--python", sys.executable, "-n", "4", "--rank", "1", "-o", str(table), "--json"]
    code, said = cli.run(["profile", *options, str(script), "12"]), capfd.readouterr()
    assert code == 0, said.err
    assert "steps 4 to 6 are traced, the script ends here" in said.err
    times = profiles.load_table(table).times
    products = [key for key in times if key.startswith("gemm;")]
    # Of a block: three products of each of two linear layers, each with half of 4,096 columns or rows.
    assert len(products) == 6, products
    assert all("2048" in key for key in products)
    found = json.loads(said.out)
    assert found["steps"] == 3
    assert found["not_covered_share"] < 0.2
    assert found["clock_share_sampled"] is None or 0.3 < found["clock_share_sampled"] <= 1.0


def test_whole_script(tmp_path: Path) -> None:
    script, table = tmp_path / "infer.py", tmp_path / "t.times"
    script.write_text(
        "import torch\n"
        "a = torch.randn(2048, 2048, device='cuda', dtype=torch.bfloat16)\n"
        "for _ in range(20): a = torch.nn.functional.softmax(a @ a, dim=-1)\n"
        "torch.cuda.synchronize()\n"
    )
    assert cli.run(["profile", "--python", sys.executable, "-o", str(table), str(script)]) == 0
    [product] = [one for key, one in profiles.load_table(table).times.items() if key.startswith("gemm;")]
    assert product.executions == 20
