"""The oracle: facts in any order and portions, simulated any way ahead, give what facts in order give."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from phantora_async.virtual_time import NetworkModel

from .programs import (
    MOST,
    Ahead,
    Program,
    eager,
    fault_texts,
    fixed,
    network,
    never,
    on_demand,
    paces_for,
    play,
    programs,
    write,
)

NEW_STREAM_TAKEN_BACK: Program = [
    (0, ("collective", 0, 0, 0, 2, [0, 0, 0, 1, 0])),
    (3, ("sync", 1)),
    (0, ("wait for event", 2, 0)),
    (3, ("destroy", 0)),
]
"""Rank 3 makes a stream and works on it, and then goes back to before that."""


@pytest.mark.parametrize(("make_network", "scale"), [(fixed, 1), (network, 20_000)], ids=["fixed", "network"])
@pytest.mark.parametrize("ahead", [never, eager, on_demand])
def test_all_policies_agree_with_the_oracle(make_network: Callable[[], NetworkModel], scale: int, ahead: Ahead) -> None:
    @settings(max_examples=200, deadline=None)
    @given(
        size=st.integers(1, MOST),
        program=programs,
        depth=st.integers(1, 8),
        seed=st.integers(0, 2**32),
        faults=fault_texts,
    )
    @example(size=4, program=NEW_STREAM_TAKEN_BACK, depth=1, seed=1, faults=[])
    def check(size: int, program: Program, depth: int, seed: int, faults: list[str]) -> None:
        paces = paces_for(size, faults)
        oracle = play(write(size, program, scale), make_network, None, never, depth, paces=paces)
        played = play(write(size, program, scale), make_network, seed, ahead, depth, paces=paces)
        assert played.outcome == oracle.outcome
        assert played.timeline.history.kept == 0 or played.timeline.history.ahead

    check()
