"""`check` answers from what is kept of an earlier run if nothing changed on which it depended, and only then."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from .conftest import RANKS_PYTHON, needs_torch

pytestmark = pytest.mark.torch
TRAIN = """
import torch
import sizes
with open("batch.txt") as file:
    batch = int(file.read())
held = torch.empty(batch, sizes.WIDTH, device="cuda")
torch.cuda.synchronize()
print("held", held.numel())
"""
JOBS = f"""
[job.mine]
script = "train.py"
world_size = 2
max_memory = "1GiB"
known = true
python = "{RANKS_PYTHON}"
"""


@pytest.fixture
def check(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, count_run: Callable[[], None]
) -> Callable[..., dict[str, Any]]:
    needs_torch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    Path("train.py").write_text(TRAIN)
    Path("sizes.py").write_text("WIDTH = 1 << 20\n")
    Path("batch.txt").write_text("4\n")
    Path("jobs.toml").write_text(JOBS)

    def run(*options: str) -> dict[str, Any]:
        count_run()
        command = [sys.executable, "-m", "phantora_async", "check", "jobs.toml", "--json", *options]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        assert "is not kept" not in done.stderr, done.stderr
        (job,) = json.loads(done.stdout)["jobs"]
        return dict(job)

    return run


def simulated(job: dict[str, Any]) -> str:
    return json.dumps(json.loads(Path(job["report"]).read_text())["simulated"], sort_keys=True)


def test_a_job_of_which_nothing_changed_is_not_run_again(check: Callable[..., dict[str, Any]]) -> None:
    first = check()
    assert first["kept"] is None
    second = check()
    assert second["kept"] is not None
    assert simulated(second) == simulated(first)
    differing = {name for name in first if first[name] != second[name]}
    assert differing <= {"kept", "wall_s", "report"}
    log = Path(second["report"]).with_name("rank0.log").read_text()
    assert log == Path(first["report"]).with_name("rank0.log").read_text() == f"held {4 << 20}\n"

    Path("sizes.py").write_text("WIDTH = 1 << 21\n")
    other = check()
    assert other["kept"] is None
    assert other["figures"]["allocated"] == 2 * first["figures"]["allocated"]
    Path("batch.txt").write_text("8\n")
    data = check()
    assert data["kept"] is None
    assert data["figures"]["allocated"] == 4 * first["figures"]["allocated"]

    # As it was at first: that result is there, too.
    Path("sizes.py").write_text("WIDTH = 1 << 20\n")
    Path("batch.txt").write_text("4\n")
    back = check()
    assert back["kept"] == second["kept"]
    assert simulated(back) == simulated(first)
    assert check("--again")["kept"] is None
