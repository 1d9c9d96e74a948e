"""Control tensors: what the device answers is what the CPU answers."""

from __future__ import annotations

from pathlib import Path

import pytest

from .conftest import Run

pytestmark = pytest.mark.torch


def test_computing_them_is_no_work_of_the_script_s(run: Run, tmp_path: Path) -> None:
    script = tmp_path / "profiled.py"
    script.write_text(
        "import torch\nfrom torch.profiler import ProfilerActivity, profile\n"
        "x = torch.ones(4, dtype=torch.int64, device='cuda')\n"
        "with profile(activities=[ProfilerActivity.CPU]) as seen:\n    y = x + 1\n"
        "assert y.tolist() == [2] * 4\n"
        "print('OPS', *sorted(event.key for event in seen.key_averages() if event.key.startswith('aten::')))\n"
    )
    done = run(script, n=1)
    assert done.exit_code == 0, done.output
    assert "OPS aten::add\n" in done.log(0)


UNKNOWN = """
import os, torch
import torch.distributed as dist
rank = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(rank)
dist.init_process_group("nccl")
dist.barrier()
store = dist.distributed_c10d._get_default_store()
x = torch.randn(2000, 2000, device="cuda")
unknown = (x @ x).argmax()
table = torch.arange(3, device="cuda")
if rank == 1:
    store.wait(["deferred"])
dist.all_reduce(unknown)
moved = unknown + 5
taken = table.take(moved)
if rank == 0:
    store.set("deferred", "")
print("VALUE", taken.item(), moved.item())
"""


def test_deferred_operations_on_unknown_values_are_not_computed(run: Run, tmp_path: Path) -> None:
    """The operations wait for values of another rank; when these arrive it turns out that no rank knows them."""
    script = tmp_path / "unknown.py"
    script.write_text(UNKNOWN)
    done = run(script, n=2)
    assert done.exit_code == 0, done.output
    assert "VALUE 0 5\n" in done.log(0)
    assert "IndexError" not in done.output + done.log(0), "5 would be out of range"
    (warning,) = done.simulated["warnings"]
    assert "reads int64 values that depend on kernels that are not executed" in warning["text"]
    assert done.simulated["unmodelled_reads"] == 2 * 2, "two values on each of two ranks"


OVERRIDING = """
import torch
library = torch.library.Library("aten", "IMPL")

def cumsum(tensor, dim, *, dtype=None):
    print("OVERRIDDEN")
    return torch.empty_like(tensor)

library.impl("cumsum", cumsum, "CUDA", allow_override=True)
"""


def test_a_kernel_that_a_module_puts_in_the_place_of_torch_s_is_computed_too(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The module is imported for all ranks, after our functions were put before torch's kernels."""
    (tmp_path / "overriding.py").write_text(OVERRIDING)
    script = tmp_path / "sums.py"
    script.write_text("import torch\nprint('SUMS', torch.arange(4, device='cuda').cumsum(0).tolist())\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    done = run(script, n=1, options=("--preload", "overriding"))
    assert done.exit_code == 0, done.output
    assert done.log(0) == "OVERRIDDEN\nSUMS [0, 1, 3, 6]\n"
