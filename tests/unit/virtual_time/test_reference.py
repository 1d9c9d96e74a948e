"""The engine does what a reference of a few lines does."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from phantora_async.virtual_time import Collective, HostState

from .programs import MOST, Program, never, on_demand, play, programs, write
from .reference import Reference
from .scripted import Arrivals, FixedNetwork, Script, new_fact_builder


def duration_ns(collective: Collective) -> int:
    return 1 + collective.nbytes


class Facts:
    """Keeps what it is fed."""

    def __init__(self, size: int) -> None:
        self.of_ranks: list[list[object]] = [[] for _ in range(size)]

    def feed(self, rank: int, facts: list[object]) -> None:
        self.of_ranks[rank] += facts


def reference_of(scripts: list[Script], depth: int) -> Reference:
    kept = Facts(len(scripts))
    arrivals = Arrivals(scripts, kept, new_fact_builder(len(scripts)))  # type: ignore[arg-type]
    while arrivals:
        for rank in range(len(scripts)):
            if not arrivals.waits(rank):
                arrivals.feed(rank, arrivals.left(rank))
    made = Reference(kept.of_ranks, duration_ns, depth)
    made.run()
    return made


def is_in_reference(action: tuple[Any, ...]) -> bool:
    """Aborts and loops of questions are not in the reference. Nor are segments that take no time alone, but some beside
    NCCL: they have no units of work, so that their share that is done is not defined, and no hook sends one."""
    match action:
        case ("abort" | "poll" | "loop", *_):
            return False
        case ("segment", _, solo_ns, more_ns, _):
            return bool(solo_ns or not more_ns)
    return True


@settings(max_examples=60)
@given(size=st.integers(1, MOST), program=programs, depth=st.integers(1, 8), seed=st.integers(0, 2**32))
def test_random_programs(size: int, program: Program, depth: int, seed: int) -> None:
    program = [(rank, action) for rank, action in program if is_in_reference(action)]
    expected = reference_of(write(size, program, 1), depth)
    for ahead in (never, on_demand):
        played = play(write(size, program, 1), lambda: FixedNetwork(duration_ns), seed, ahead, depth)
        outcome = played.outcome
        assert {rank: host.answers for rank, host in enumerate(expected.hosts) if host.answers} == outcome["answers"]
        assert sorted(expected.begun) == outcome["begun"]
        assert [host.clock_ns for host in expected.hosts] == outcome["clocks"]
        assert [host.finished for host in expected.hosts] == [one == HostState.FINISHED for one in outcome["states"]]
        assert [(done_ns, host_ns) for _, host_ns, done_ns in expected.hosts[0].ends] == [
            tuple(one) for one in outcome["instants"]
        ]


def test_a_hand_computed_case() -> None:
    """A segment alone takes its 100 ns."""
    one = Script(0, 1).segment(100, contended_ns=200).sync(stream=1).clock().bye()
    made = reference_of([one], 8)
    assert made.hosts[0].answers == [100]
