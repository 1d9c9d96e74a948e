"""Control tensors: what the device answers is what the CPU answers."""

from __future__ import annotations

import pytest

from .conftest import Run

pytestmark = pytest.mark.torch


def test_answers_are_the_cpu_s(run: Run) -> None:
    done = run("control_tensors.py", n=1)
    assert done.exit_code == 0, done.output
    assert "PASSED" in done.output
