"""The oracle: facts in any order and portions, simulated any way ahead, give what facts in order give."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from phantora_async.virtual_time import HostState, NetworkModel

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
DEAD_AT_THE_END: Program = [(0, ("exchange", 0, 3, 23)), (0, ("poll", 2, 3, 2001))]
"""With a GPU that dies: its work stays to be done for ever, but the last instant before is final."""


@pytest.mark.parametrize(("make_network", "scale"), [(fixed, 1), (network, 20_000)], ids=["fixed", "network"])
@pytest.mark.parametrize("ahead", [never, eager, on_demand])
def test_all_policies_agree_with_the_oracle(make_network: Callable[[], NetworkModel], scale: int, ahead: Ahead) -> None:
    @settings(max_examples=200)
    @given(
        size=st.integers(1, MOST),
        program=programs,
        depth=st.integers(1, 8),
        seed=st.integers(0, 2**32),
        faults=fault_texts,
    )
    @example(size=4, program=NEW_STREAM_TAKEN_BACK, depth=1, seed=1, faults=[])
    @example(size=4, program=DEAD_AT_THE_END, depth=5, seed=3473791831, faults=["gpu 0 dead at 2224ns"])
    def check(size: int, program: Program, depth: int, seed: int, faults: list[str]) -> None:
        paces = paces_for(size, faults)
        oracle = play(write(size, program, scale), make_network, None, never, depth, paces=paces)
        played = play(write(size, program, scale), make_network, seed, ahead, depth, paces=paces)
        assert played.outcome == oracle.outcome
        assert played.timeline.history.kept == 0 or played.timeline.history.ahead

    check()


ABORT_BEFORE_THE_LAST_MEMBER: Program = [
    (0, ("collective", 0, 0, 0, 1, [0, 0, 0, 0, 0])),
    (0, ("abort", 0, 0)),
]
"""Both ranks call at 10 ns, where their last communicator is made. Rank 0 is the first in the order of that instant: it
calls and aborts, and rank 1 waits for it for ever."""
ABORT_BEHIND_THE_LAST_MEMBER: Program = [
    (0, ("collective", 0, 0, 0, 1, [5, 0, 0, 0, 0])),
    (1, ("abort", 0, 5)),
]
"""Rank 1 calls at 10 ns and aborts at 15 ns, at which rank 0 calls. As rank 0 is the first in the order of that
instant, the collective begins, and an abort does not end kernels that move data."""


@pytest.mark.parametrize("ahead", [never, eager, on_demand])
def test_an_abort_at_the_instant_of_the_begin_comes_in_the_order_of_ranks(ahead: Ahead) -> None:
    for seed in (None, *range(40)):
        early = play(write(2, ABORT_BEFORE_THE_LAST_MEMBER, 1), fixed, seed, ahead, 1).outcome
        assert early["states"] == [HostState.FINISHED, HostState.WAITS_DEVICE]
        assert (early["begun"], early["clocks"]) == ([], [10, 10])
        late = play(write(2, ABORT_BEHIND_THE_LAST_MEMBER, 1), fixed, seed, ahead, 1).outcome
        assert late["states"] == [HostState.FINISHED, HostState.FINISHED]
        assert [at_ns for at_ns, _ in late["begun"]] == [15]


ABORT_LETS_A_STREAM_GO_ON: Program = [
    (2, ("collective", 0, 1, 115, 2, [0, 263, 0, 0, 0])),
    (2, ("event", 2, 3)),
    (3, ("send", 2, 3, 88)),
    (2, ("abort", 0, 0)),
]
"""Rank 2 aborts before rank 1 calls. The gather at the head of its stream 2 ends; stream 3 waits for it, and has a
receive of the same communicator next."""


@pytest.mark.parametrize("ahead", [never, eager, on_demand])
def test_a_kernel_behind_one_that_an_abort_ends_does_not_start(ahead: Ahead) -> None:
    for seed in (None, *range(20)):
        outcome = play(write(4, ABORT_LETS_A_STREAM_GO_ON, 1), fixed, seed, ahead, 2).outcome
        waits, done = HostState.WAITS_DEVICE, HostState.FINISHED
        assert outcome["begun"] == []
        assert outcome["states"] == [waits, waits, done, waits]
