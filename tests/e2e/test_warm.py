"""An interpreter that is kept for later runs (--warm) changes no result, and takes nothing from one run to the next."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from .conftest import RANKS_PYTHON, SCRIPTS, Run

pytestmark = pytest.mark.torch


def warm(*options: str) -> str:
    command = [sys.executable, "-m", "phantora_async", "warm", *options]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def kept(served: int) -> list[tuple[str, str]]:
    """The processes of the interpreters of this environment that have served so many runs."""
    told = warm()
    found = re.findall(
        rf"^processes (\d+) and (\d+): .* {served} runs?\b.* {re.escape(RANKS_PYTHON)}$", told, re.MULTILINE
    )
    assert found, told
    return found


@pytest.fixture
def alone() -> Iterator[None]:
    """No interpreter is kept before and after the test."""
    warm("--stop")
    yield
    warm("--stop")


def test_runs_with_a_kept_interpreter_agree_to_the_byte(run: Run, alone: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OLDPWD", "/")
    own = run("inherited.py", n=2)
    assert own.exit_code == 0, own.output
    first = run("inherited.py", n=2, options=("--warm",))
    assert first.exit_code == 0, first.output
    (interpreter,) = kept(served=1)
    monkeypatch.setenv("OLDPWD", "/usr")  # nothing that is imported looks at it
    second = run("inherited.py", n=2, options=("--warm",))
    assert second.exit_code == 0, second.output
    assert kept(served=2) == [interpreter]
    for other in (first, second):
        assert [other.log(rank) for rank in range(2)] == [own.log(rank) for rank in range(2)]
        assert json.dumps(other.simulated, sort_keys=True) == json.dumps(own.simulated, sort_keys=True)
    assert "ended: processes" in warm("--stop")
    assert "no interpreter is kept" in warm()


SESSION = """\
import sys
from phantora_async import run
from phantora_async.api.run_processes import RunProcesses
from phantora_async.launch import warm_interpreters

script, folder = sys.argv[1:]
run(script, world_size=2, progress=False, run_dir=f"{folder}/own")
with RunProcesses() as shared:
    for number in range(2):
        run(script, world_size=2, progress=False, run_dir=f"{folder}/{number}", processes=shared)
    run(script, world_size=2, progress=False, run_dir=f"{folder}/apart", processes=shared, shared_start=False)
    (kept,) = warm_interpreters._ask(shared.interpreters(), "about")
    print("served", kept.about["served"])
print("left", shared.interpreters().exists())
"""


def test_runs_of_a_session_agree_to_the_byte_with_runs_of_their_own(tmp_path: Path) -> None:
    command = [sys.executable, "-c", SESSION, str(SCRIPTS / "inherited.py"), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert re.findall("^(?:served|left) .*", done.stdout, re.MULTILINE) == ["served 2", "left False"]
    own, *shared = (tmp_path / name for name in ("own", "0", "1", "apart"))
    for other in shared:
        for rank in range(2):
            assert (other / f"rank{rank}.log").read_text() == (own / f"rank{rank}.log").read_text()
        reports = [json.loads((folder / "report.json").read_text()) for folder in (own, other)]
        assert len({json.dumps(report["simulated"], sort_keys=True) for report in reports}) == 1
        options = [{*report["run"]["options"]} - {"shared_start"} for report in reports]
        assert options[0] == options[1]
