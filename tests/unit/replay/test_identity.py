"""A run that is recorded and executed again is the same run."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from phantora_async.replaying.answers import Compared, compare
from phantora_async.virtual_time import NetworkModel
from tests.unit.virtual_time.programs import MOST, Program, fault_texts, fixed, network, paces_for, programs, write

from .recordings import load, outcome, record, replayed


@pytest.mark.parametrize(("make_network", "scale"), [(fixed, 1), (network, 20_000)], ids=["fixed", "network"])
def test_random_programs(make_network: Callable[[], NetworkModel], scale: int) -> None:
    @settings(max_examples=60)
    @given(size=st.integers(1, MOST), program=programs, depth=st.integers(1, 8), faults=fault_texts)
    def check(size: int, program: Program, depth: int, faults: list[str]) -> None:
        paces = paces_for(size, faults)
        with tempfile.TemporaryDirectory() as folder:
            ran, _ = record(write(size, program, scale), Path(folder), make_network(), depth, paces)
            recording = load(Path(folder))
            again, answers = replayed(recording, make_network(), depth, paces)
            assert outcome(again) == outcome(ran)
            compared = compare(recording, answers, frozenset()).values()
            assert all(one == Compared(one.answers, 0, 0) for one in compared)

    check()
