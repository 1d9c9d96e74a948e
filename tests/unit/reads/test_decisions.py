"""Functions in C that decide by numbers that nobody computed: the decision is told at the line that calls them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from emu.reads import marked
from emu.reads.decisions import Decisions
from emu.reads.marked import Mark

pytestmark = pytest.mark.torch


class _Hook:
    """Keeps what it is told."""

    def __init__(self) -> None:
        self.warned: dict[str, str] = {}
        self.counts: dict[str, int] = {}

    def warn_once(self, key: str, text: str) -> None:
        self.warned.setdefault(key, text)

    def decided(self, reads: int, place: str) -> None:
        self.counts[place] = reads

    def unknown_on_host(self, on: bool) -> None: ...
    def unknown_read(self) -> None: ...

    def line(self) -> str:
        return ""


@pytest.fixture
def hook() -> _Hook:
    return _Hook()


@pytest.fixture
def decisions(hook: _Hook, monkeypatch: pytest.MonkeyPatch) -> Decisions:
    monkeypatch.setattr("emu.reads.compiled_calls.install", lambda ask: None)
    carriers: Any = SimpleNamespace(usable=False)
    library: Any = hook
    return Decisions(library, "/", carriers)


def costs() -> Any:
    return [[marked.marked(2.5, Mark("train.py:3", "float32", "0")), 1.0]]


def test_a_matching_by_unknown_costs_is_told_once(decisions: Decisions, hook: _Hook) -> None:
    """`scipy.optimize.linear_sum_assignment`, as object detection matches boxes."""
    columns = ([0], [1])
    for _ in range(4):
        found = decisions._replace("linear_sum_assignment", columns, False, False, costs())
        assert found == columns
    assert len(hook.warned) == 1
    (text,) = hook.warned.values()
    assert "test_decisions.py" in text
    assert "linear_sum_assignment" in text
    assert "train.py:3" in text
    assert [*hook.counts.values()] == [4], "each number counts"


def test_a_function_that_fails_by_an_unknown_number_is_told(decisions: Decisions, hook: _Hook) -> None:
    decisions._replace("log", None, True, False, costs()[0][0])
    assert len(hook.warned) == 1


def test_elements_that_are_made_of_unknown_numbers(decisions: Decisions) -> None:
    assert decisions._flags([costs()[0], (3, 4.0)]) == [True, False, False, False]
    assert decisions._flags(costs()[0][:1]) is None, "all"
    assert decisions._flags([object()]) is None


def test_the_line_that_reads_is_the_script_s(decisions: Decisions, hook: _Hook) -> None:
    assert decisions.read_at() == ""
    assert decisions.how_to_state("/lib/site-packages/megatron/clip.py:3").startswith("; --value megatron/clip.py:3=")
