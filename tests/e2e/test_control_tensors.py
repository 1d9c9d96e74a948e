"""Control tensors: what the device answers is what the CPU answers."""

from __future__ import annotations

from pathlib import Path

import pytest

from .conftest import Run

pytestmark = pytest.mark.torch


def test_answers_are_the_cpu_s(run: Run) -> None:
    done = run("control_tensors.py", n=1)
    assert done.exit_code == 0, done.output
    assert "PASSED" in done.output


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
