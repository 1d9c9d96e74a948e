"""What is simulated does not depend on how fast, or how busy, this machine is."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from .conftest import Run

pytestmark = pytest.mark.torch
WORLD = 16
"""Two servers of eight."""
BUSY = 3
"""Processes that do nothing but use processor time."""


@contextmanager
def load() -> Iterator[None]:
    """Other programs use the processors, too."""
    spinning = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(BUSY)]
    try:
        yield
    finally:
        for process in spinning:
            process.kill()
            process.wait()


def simulated(document: dict[str, object]) -> str:
    return json.dumps(document, sort_keys=True, indent=1)


@pytest.mark.parametrize("speculation", ["never", "eager"])
def test_two_runs_agree_to_the_byte(run: Run, speculation: str) -> None:
    quiet = run("determinism.py", n=WORLD)
    assert quiet.exit_code == 0, quiet.output
    with load():
        busy = run("determinism.py", n=WORLD, options=("--speculation", speculation))
    assert busy.exit_code == 0, busy.output
    assert quiet.simulated["servers"] == [8, 8]
    assert simulated(busy.simulated) == simulated(quiet.simulated)
    printed = [line for line in quiet.log(0).splitlines() if line.startswith("times ")]
    assert printed
    assert printed == [line for line in busy.log(0).splitlines() if line.startswith("times ")]
