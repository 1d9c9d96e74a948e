"""A rank whose other ranks do not exist (emu.real_run), on the CPU: what they answer, and which steps are traced."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any, ClassVar

import pytest

pytest.importorskip("torch")

from emu.contract.installed import EMU, program
from emu.real_run.tracing import Tracing
from phantora_async.gpu_profile.rank_on_gpu import ProfiledJob, _environment

pytestmark = pytest.mark.torch
WORLD = Path(__file__).parent / "scripts" / "world.py"
STEPS = """
import sys, torch
model = torch.nn.Linear(4, 4)
optimizers = [torch.optim.SGD(model.parameters(), 0.1), torch.optim.SGD(model.parameters(), 0.1)]
for step in range(int(sys.argv[1])):
    for part in range(2):
        model(torch.randn(2, 4)).sum().backward()
    for optimizer in optimizers:
        optimizer.step()
print("the script has ended", flush=True)
sys.exit(int(sys.argv[2]))
"""


def run(folder: Path, script: Path, *arguments: str, rank: int = 0, **options: Any) -> tuple[int, str, str]:
    job = ProfiledJob(
        str(script), False, arguments, rank, 4, 4, options.pop("steps", 3), options.pop("to_the_end", False)
    )
    task = folder / "task.json"
    fields = {name: getattr(job, name) for name in job.__slots__}
    task.write_text(json.dumps(fields | {"warm": 3, "folder": str(folder)} | options))
    done = subprocess.run(
        [sys.executable, "-c", program("real_run.__main__"), str(EMU), str(task)],
        env=_environment(job, str(folder)),
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout, done.stderr


def result(folder: Path) -> tuple[int, int] | None:
    """Returns the number of the first traced step, and how many were traced."""
    path = folder / "result.json"
    if not path.exists():
        return None
    found = json.loads(path.read_text())
    assert json.loads(Path(found["trace"]).read_text())["traceEvents"]
    return found["first_step"], found["steps"]


@pytest.mark.versions
@pytest.mark.parametrize(
    ("rank", "backend"), [pytest.param(0, "nccl", marks=pytest.mark.thorough), (3, "cpu:gloo,cuda:nccl")]
)
def test_the_other_ranks(rank: int, backend: str, tmp_path: Path) -> None:
    code, out, err = run(tmp_path, WORLD, backend, "8", rank=rank, to_the_end=True)
    assert code == 0, err
    assert "the script has ended" in out
    assert result(tmp_path) == (4, 3)
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    names = {event.get("name") for event in events if event.get("cat") == "user_annotation"}
    assert "phantora.stand_in" in names


def test_a_window_of_steps(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(STEPS)
    code, out, err = run(tmp_path, tmp_path / "train.py", "9", "0", steps=2)
    assert (code, result(tmp_path)) == (0, (4, 2)), err
    assert "the script has ended" not in out
    assert "steps 4 to 5 are traced, the script ends here" in err


def test_the_whole_script(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(STEPS)
    code, out, err = run(tmp_path, tmp_path / "train.py", "4", "0", everything=True)
    assert (code, result(tmp_path)) == (0, (1, 4)), err
    assert "the script has ended" in out


class Profiler:
    """A stand-in for torch's profiler."""

    log: ClassVar[list[str]] = []

    def __init__(self, **options: Any) -> None:
        pass

    def start(self) -> None:
        self.log.append("start")

    def stop(self) -> None:
        self.log.append("stop")


@pytest.mark.parametrize(
    ("steps", "first", "traced"),
    [(0, None, 0), (1, 2, 0), (2, 2, 1), (3, 2, 1), (4, 4, 1), (5, 4, 2), (6, 4, 3), (20, 4, 3)],
)
def test_short_scripts(steps: int, first: int | None, traced: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The steps that were traced until a script ended early count, from its second step on."""
    monkeypatch.setattr("torch.profiler.profile", Profiler)
    monkeypatch.setattr(Profiler, "log", [])
    ends: list[int] = []
    tracing = Tracing(3, 3, False, "/nowhere", lambda: ends.append(tracing.done))
    tracing.script_begins()
    for _ in range(steps):
        tracing.step_ends()
    tracing.script_ends()
    window = tracing.window
    assert (window.first if window else None, window.steps if window else 0) == (first, traced)
    assert ends == ([6] if steps >= 6 else [])
    assert Profiler.log.count("start") == Profiler.log.count("stop")


def test_a_window_of_long_steps_is_short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.profiler.profile", Profiler)
    monkeypatch.setattr("emu.real_run.tracing.LONGEST_WINDOW_S", -1.0)
    tracing = Tracing(1, 100, False, "/nowhere", lambda: None)
    for _ in range(5):
        tracing.step_ends()
    assert tracing.window is not None
    assert (tracing.window.first, tracing.window.steps) == (2, 1)


PROFILED = """
import torch
model = torch.nn.Linear(4, 4)
optimizer = torch.optim.SGD(model.parameters(), 0.1)
def step():
    model(torch.randn(2, 4)).sum().backward()
    optimizer.step()
for _ in range(FIRST): step()
with torch.profiler.profile() as own:
    for _ in range(2): step()
assert any(one.key == "aten::addmm" for one in own.key_averages())
for _ in range(8): step()
print("the script has ended", flush=True)
"""


@pytest.mark.parametrize(
    ("first", "traced"),
    [
        pytest.param(0, (4, 3), marks=pytest.mark.thorough),
        (2, (6, 3)),
        pytest.param(5, (4, 2), marks=pytest.mark.thorough),
    ],
)
def test_a_script_with_a_profiler_of_its_own(first: int, traced: tuple[int, int], tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(PROFILED.replace("FIRST", str(first)))
    code, out, err = run(tmp_path, tmp_path / "train.py", to_the_end=True)
    assert (code, result(tmp_path)) == (0, traced), err
    assert "the script has ended" in out


def test_a_script_that_fails(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(STEPS)
    assert run(tmp_path, tmp_path / "train.py", "2", "7")[0] == 7
    assert result(tmp_path) is None
    (tmp_path / "train.py").write_text("def step(): raise ValueError('no data')\nstep()\n")
    code, _, err = run(tmp_path, tmp_path / "train.py")
    assert (code, result(tmp_path)) == (1, None)
    assert err.startswith("Traceback (most recent call last):\n")
    assert "ValueError: no data" in err
    assert "real_run" not in err
