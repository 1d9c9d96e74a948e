"""Host time of `gc.collect` follows from the calls of the program alone."""

from __future__ import annotations

import gc
from types import SimpleNamespace
from typing import Any

import pytest

from emu.interpreter import garbage


def test_a_collection_takes_as_long_however_many_objects_the_rank_has_made(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first of the ranks that compute the same makes the objects of it; it must not matter which one is first."""
    monkeypatch.setattr(gc, "collect", gc.collect)
    took: list[int] = []
    hook: Any = SimpleNamespace(host_collects=took.append)
    garbage.install(hook)
    gc.collect()
    made = [[number] for number in range(10_000)]
    gc.collect(2)
    assert len(made) == 10_000
    assert took == [garbage.COLLECTION_NS] * 2


def test_a_collection_of_young_objects_takes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gc, "collect", gc.collect)
    took: list[int] = []
    hook: Any = SimpleNamespace(host_collects=took.append)
    garbage.install(hook)
    gc.collect(0)
    gc.collect(1)
    assert took == []
