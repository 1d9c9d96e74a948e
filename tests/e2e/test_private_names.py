"""A run with a version of PyTorch that lacks private names goes on, and says what is left out."""

from __future__ import annotations

from pathlib import Path

import pytest

from emu.start import exposed_ddp

from .conftest import Run

REMOVED = """\
import torch.distributed.tensor, torch.utils._device, torch.utils.data.dataloader

del torch.distributed.tensor._sharding_prop.ShardingPropagator.propagate_op_sharding_non_cached
del torch._C._cuda_attach_out_of_memory_observer
del torch.utils.data.dataloader._MultiProcessingDataLoaderIter._try_put_index
"""
LOST = (
    "ShardingPropagator.propagate_op_sharding_non_cached: sharding propagation takes the host time",
    "torch._C._cuda_attach_out_of_memory_observer: the report does not say what held",
    "_try_put_index: loading data takes no virtual time; results may be wrong: steps",
)
SCRIPT = """\
import torch

torch.distributed.init_process_group("nccl")
torch.cuda.set_device(torch.distributed.get_rank())
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(64, 64).cuda())
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(3):
    model(torch.ones(8, 64, device="cuda")).sum().backward()
    optimizer.step()
print("ended")
"""


def test_names_that_are_gone_end_no_run(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "another_version.py").write_text(REMOVED)
    (tmp_path / "train.py").write_text(SCRIPT)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    done = run(tmp_path / "train.py", options=("--preload", "another_version"))
    assert done.exit_code == 0, done.output
    assert "ended" in done.log(1)
    texts = [warning["text"] for warning in done.simulated["warnings"]]
    warnings = [text for text in texts if text != exposed_ddp.TEXT]  # PyTorch 2.15's DDP hides no all-reduce
    for lost in LOST:
        assert sum(lost in warning for warning in warnings) == 1, (lost, warnings)
        assert f"phantora-async: warning: {next(one for one in warnings if lost in one)}" in done.output
    assert len(warnings) == len(LOST)
