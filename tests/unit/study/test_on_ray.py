"""A trial on a Ray cluster is the same run as here."""

from __future__ import annotations

import pytest

from phantora_async.launch.launcher import tensor_threads
from phantora_async.study.on_ray import environment_of_trial

IN_A_TASK = {"OMP_NUM_THREADS": "8"}
"""What Ray sets in a task that reserves 8 CPUs."""


def test_the_cpus_that_a_task_reserves_are_no_threads_of_the_described_host(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 8 ranks each has one thread, as under torchrun, unless the sweep or the trial says how many."""
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    assert tensor_threads(IN_A_TASK | environment_of_trial({"A": "1"}), 8, 112) == 1
    assert tensor_threads(IN_A_TASK | environment_of_trial({}), 1, 112) == 112
    assert tensor_threads(IN_A_TASK | environment_of_trial({"OMP_NUM_THREADS": "2"}), 8, 112) == 2
    monkeypatch.setenv("OMP_NUM_THREADS", "4")
    assert tensor_threads(IN_A_TASK | environment_of_trial({}), 8, 112) == 4
