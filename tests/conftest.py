"""Fixtures and set-up that all tests have in common."""

from __future__ import annotations

import fcntl
import os
import pickle
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import hypothesis
import pytest

Once = Callable[[str, Callable[[Path], Any]], Any]


def pytest_configure() -> None:
    """A shell that starts a command in the background may have it ignore Ctrl-C, and its children inherit that. Tests
    send SIGINT to what they start.
    """
    signal.signal(signal.SIGINT, signal.default_int_handler)
    hypothesis.settings.register_profile("untimed", deadline=None)  # no test fails because a machine is busy
    hypothesis.settings.load_profile("untimed")
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # each of some thousand processes would compile our modules again


def folder_of_all(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that the processes of a test run have in common."""
    base = tmp_path_factory.getbasetemp()
    return base.parent if "PYTEST_XDIST_WORKER" in os.environ else base


@pytest.fixture(scope="session")
def once(tmp_path_factory: pytest.TempPathFactory) -> Once:
    """`once(name, make)`: what `make(folder)` returned, which only the first of a test run's processes calls."""
    root = folder_of_all(tmp_path_factory)

    def get(name: str, make: Callable[[Path], Any]) -> Any:
        folder = root / f"once-{name}"
        folder.mkdir(exist_ok=True)
        result = folder / "result.pickle"
        with (folder / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not result.exists():
                made = make(folder)
                result.write_bytes(pickle.dumps(made))
        return pickle.loads(result.read_bytes())

    return get
