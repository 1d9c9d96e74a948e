"""An interpreter that is kept for later runs (--warm) changes no result, and takes nothing from one run to the next."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator

import pytest

from .conftest import Run

pytestmark = pytest.mark.torch


def warm(*options: str) -> str:
    command = [sys.executable, "-m", "phantora_async", "warm", *options]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def kept(served: int) -> list[tuple[str, str]]:
    """The processes of the interpreters of this environment that have served so many runs."""
    told = warm()
    found = re.findall(
        rf"^processes (\d+) and (\d+): .* {served} runs?\b.* {re.escape(sys.executable)}$", told, re.MULTILINE
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
