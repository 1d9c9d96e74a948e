"""The CI examples install what exists: no package of an index, and one version of PyTorch."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from phantora_async.gate.job_file import read

CI = Path(__file__).parents[3] / "examples" / "ci"


@pytest.mark.parametrize("name", ["github.yml", "gitlab.yml"])
def test_the_package_comes_from_a_checkout_or_a_wheel_and_pytorch_is_pinned(name: str) -> None:
    text = (CI / name).read_text()
    assert re.search(r"^ +PHANTORA: git\+https://\S+/phantora-async@\S+$", text, re.MULTILINE)
    assert re.search(r"^ +TORCH: torch==\d+\.\d+\.\d+$", text, re.MULTILINE)
    assert re.findall(r"pip install (.*)", text) == ['"$TORCH" "$PHANTORA"']


def test_a_fork_of_torchtitan_is_checked_by_its_own_budgets() -> None:
    folder = CI / "torchtitan"
    text = (folder / "gpu-budgets.yml").read_text()
    assert re.findall(r"pip install (.*)", text) == ['"$TORCH" "$PHANTORA" .']
    assert re.findall(r"phantora-async check (\S+)", text) == ["gpu_budgets.toml"]
    jobs = read(folder / "gpu_budgets.toml")
    found = [(job.name, job.options.script, job.options.module, job.options.world_size) for job in jobs]
    assert found == [
        ("fsdp_reshard_always", "torchtitan.train", True, 2),
        ("pp_1f1b", "torchtitan.train", True, 2),
        ("2d_eager", "torchtitan.train", True, 4),
    ]
    assert {job.options.steps for job in jobs} == {5}  # a median of the step, beside the peak of memory
