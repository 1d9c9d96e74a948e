"""A working directory with a script, and runs that are stand-ins: their recordings and replays are real."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from emu.contract import records
from phantora_async.api import running
from phantora_async.api.results import Run
from phantora_async.options import RunOptions
from tests.unit.replay.recordings import record
from tests.unit.virtual_time.scripted import FixedNetwork, Script, world_comm

Change = Callable[[RunOptions, dict[str, Any]], None]


@dataclass
class Runs:
    """The runs that were asked for, and what they return."""

    asked: list[RunOptions] = field(default_factory=list)
    environments: list[dict[str, str]] = field(default_factory=list)
    change: Change = lambda options, simulated: None
    """Changes the report; may raise."""

    def run(self, options: RunOptions, environment: Mapping[str, str], processes: object = None) -> Run:
        self.asked.append(options)
        self.environments.append(dict(environment))
        simulated = made(options)
        self.change(options, simulated)
        if options.record is not None:
            record_in(Path(options.record))
        return Run({"simulated": simulated}, Path(options.run_dir or "") / "report.json")

    @property
    def arguments(self) -> list[list[str]]:
        return [list(options.arguments) for options in self.asked]


def made(options: RunOptions) -> dict[str, Any]:
    """Returns the report of a run on two GPUs: steps of 400 ms, half of that with --fast."""
    memory = {"reserved_peak_nbytes": 60 << 30, "allocated_peak_nbytes": 50 << 30}
    return {
        "world_size": 2,
        "gpu": options.gpu or "h200",
        "step": {"source": "optimizer markers on rank 0", "median_ns": 400_000_000 >> ("--fast" in options.arguments)},
        "work": {"mfu": 0.4},
        "ranks": [{"memory": memory, "steps": 5}] * 2,
        "energy": {"step_j": 500.0, "gpu_w": 600.0},
        "memory": {"verdict": {"fits": True, "left_nbytes": 1 << 30}},
    }


def record_in(folder: Path) -> None:
    """Records three steps of two ranks: a kernel, then an all-reduce of 64 MiB."""
    ranks = [Script(rank, 2, world_comm(2)) for rank in range(2)]
    for rank, script in enumerate(ranks):
        script.add(records.CommInit.encode(0, 1, 2, rank, rank, 0, payload=b"world".ljust(128, b"\0")))
        for _ in range(5):
            script.segment(1000, after=10).all_reduce(1 << 26).sync().step()
        script.bye()
    folder.mkdir(parents=True, exist_ok=True)
    record(ranks, folder, FixedNetwork(), 64)
    (folder / "run.json").write_text("{}")


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Runs:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text("pass\n")
    found = Runs()
    monkeypatch.setattr(running, "run_with", found.run)
    return found
