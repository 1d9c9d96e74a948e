"""Values that a program gave to the device, or initialised there, are read back right; updated ones are reported."""

from __future__ import annotations

from pathlib import Path

import pytest

from .conftest import Run

pytestmark = pytest.mark.torch


@pytest.mark.parametrize("n", [pytest.param(2, marks=pytest.mark.thorough), 3])
def test_parameters_are_right_on_all_ranks_and_in_checkpoints(run: Run, n: int) -> None:
    done = run("kept_values.py", n=n)
    assert done.exit_code == 0, done.output
    for rank in range(n):
        assert "PASSED" in done.log(rank), done.log(rank)
        assert "WRONG" not in done.log(rank)


def test_updated_parameters_are_reported_once(run: Run, tmp_path: Path) -> None:
    script = tmp_path / "updated.py"
    script.write_text(
        "import torch\n"
        "model = torch.nn.Sequential(torch.nn.Linear(800, 900), torch.nn.Linear(900, 500)).cuda()\n"
        "model[1].requires_grad_(False)\n"
        "frozen = model[1].weight.cpu()\n"
        "optimizer = torch.optim.AdamW(model[0].parameters())\n"
        "model(torch.randn(4, 800, device='cuda')).sum().backward()\n"
        "optimizer.step()\n"
        "for turn in range(3):\n"
        "    state = {name: value.cpu() for name, value in model.state_dict().items()}\n"
        f"torch.save(model.state_dict(), {str(tmp_path / 'saved.pt')!r})\n"
        "print('UPDATED', state['0.weight'].abs().max().item(), 'FROZEN', torch.equal(state['1.weight'], frozen))\n"
        f"saved = torch.load({str(tmp_path / 'saved.pt')!r}, map_location='cpu')\n"
        "print('SAVED', saved['0.weight'].abs().max().item(), torch.equal(saved['1.weight'], frozen))\n"
    )
    done = run(script, n=1)
    assert done.exit_code == 0, done.output
    assert "UPDATED 0.0 FROZEN True" in done.log(0)
    assert "SAVED 0.0 True" in done.log(0)
    saved, read = (warning["text"] for warning in done.simulated["warnings"])
    assert read.startswith(f"{script}:9 reads values that were not computed")
    assert "8,640,000 bytes of 3 tensors of 8,640,000 bytes are 0" in read
    (checkpoint,) = done.simulated["checkpoints"]
    size = (tmp_path / "saved.pt").stat().st_size
    assert checkpoint == {
        "path": str(tmp_path / "saved.pt"),
        "files": 1,
        "ranks": [0],
        "times": 1,
        "written_nbytes": size,
        "uncomputed_nbytes": 2_880_000 + 900 * 4,
    }
    assert saved.startswith(f"checkpoint saved.pt: {2_883_600 / size:.1%} of its {size:,} bytes")


def test_the_report_says_what_is_kept(run: Run, tmp_path: Path) -> None:
    script = tmp_path / "kept.py"
    script.write_text(
        "import torch\n"
        "generator = torch.Generator().manual_seed(1)\n"
        "x = torch.randn(1024, 1024, generator=generator).cuda()\n"
        "y = torch.zeros(4096, 4096, device='cuda')\n"
    )
    done = run(script, n=4, options=("-v",))
    assert done.exit_code == 0, done.output
    kept = done.report["simulator"]["kept"]
    assert kept["peak_nbytes"] == 1024 * 1024 * 4, "equal bytes of four ranks are kept once, constants not at all"
    assert kept["limit_nbytes"] > kept["peak_nbytes"]
    assert kept["refused_nbytes"] == 0
    assert f"for all ranks: 4 MB (limit {kept['limit_nbytes'] / 1e6:,.0f} MB)" in done.output
