"""The nvidia-smi of emulated servers."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from .conftest import Run

pytestmark = pytest.mark.torch
ABSENT = "the machine has none in this place"


@pytest.mark.parametrize("isolation", ["full", "none"])
def test_scripts_ask_the_described_machine(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, isolation: str
) -> None:
    """Also on a machine that has one of its own, which tells of other GPUs."""
    own = tmp_path / "bin" / "nvidia-smi"
    own.parent.mkdir()
    own.write_text("#!/bin/sh\necho this machine\n")
    own.chmod(0o755)
    monkeypatch.setenv("PATH", f"{own.parent}:{os.environ['PATH']}")
    commands = (
        "nvidia-smi -L | wc -l",
        "nvidia-smi --query-gpu=name,memory.total,memory.used --format=csv,noheader -i 0",
        "RANK=0 LOCAL_RANK=0 WORLD_SIZE=2 env -u PHANTORA_RANK nvidia-smi topo -m | head -2",
        "nvidia-smi -q",
        f"{own} -L | head -1",
    )
    done = run("asks_nvidia_smi.py", *commands, options=("--gpu", "h100", "--isolation", isolation))
    if done.exit_code == 69 and "--isolation full: " in done.output:
        pytest.skip("user namespaces are forbidden here")
    assert done.exit_code == 0, done.output
    log = done.log(0)
    assert "0 2\n" in log
    # 1 GiB that the rank holds, and what no program can have
    assert "0 NVIDIA H100 80GB HBM3, 81079 MiB, 1719 MiB\n" in log
    assert "0 \tGPU0\tGPU1\tCPU Affinity" in log
    assert "GPU0\t X \t NV18 \t0-223" in log
    assert "2 nvidia-smi (emulated by phantora-async): -q is not emulated" in log
    by_path = "GPU 0: NVIDIA H100 80GB HBM3 (UUID: GPU-" if isolation == "full" else "this machine"
    assert f"0 {by_path}" in log
    assert own.read_text() == "#!/bin/sh\necho this machine\n"
