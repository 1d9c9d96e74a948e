from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.unit.hook.conftest import library  # noqa: F401

from . import harness


@pytest.fixture
def simulate(library: Path, tmp_path: Path) -> Callable[..., Any]:  # noqa: F811
    """``simulate(program, ...)``: see harness.simulate."""
    return partial(harness.simulate, library, tmp_path)
