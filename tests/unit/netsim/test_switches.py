"""Flows that change their links at a tick, and late facts that move them."""

from __future__ import annotations

import random
from array import array

import pytest

from netsim.native.core import Core, Hops, encode, join
from tests.unit.netsim.oracle import Fact, completions

RATE = 1 << 50
"""A byte at this rate lasts 1,024 ticks."""


def test_a_flow_that_is_done_before_its_switch_leaves_the_links_of_its_second_path_free() -> None:
    core = Core(array("q", [RATE, RATE]))
    beside = core.add(0, 10, None, encode([(0, 1)]))
    switching = core.add(0, 10, None, join([encode([(0, 1)]), encode([(1, 1)], path=1)]), [0, 15_000])
    core.advance(16_000)
    core.retract(beside)
    assert core.completion(switching) == 10_240
    after = core.add(17_000, 10, None, encode([(1, 1)]))
    core.advance(100_000)
    assert core.completion(after) == 27_240


def paths(rng: random.Random, links: int, count: int) -> list[tuple[tuple[int, int], ...]]:
    several = [sorted(rng.sample(range(links), rng.randint(1, min(3, links)))) for _ in range(count)]
    return [tuple((link, rng.choice([1, 1, 2])) for link in path) for path in several]


def encoded(several: list[tuple[tuple[int, int], ...]]) -> Hops:
    return join([encode(path, number) for number, path in enumerate(several)])


@pytest.mark.parametrize("seed", range(60))
def test_switches_and_late_facts_give_the_plain_answer(seed: int) -> None:
    rng = random.Random(seed)
    capacities = [rng.choice([1, 2, 3, 5]) * RATE for _ in range(rng.randint(2, 6))]
    core = Core(array("q", capacities))
    facts: dict[int, Fact] = {}
    flows: dict[int, int] = {}
    present = 0
    for key in range(rng.randint(4, 30)):
        start, several = rng.randrange(60_000), paths(rng, len(capacities), rng.choice([1, 1, 2, 3]))
        at = [0, *sorted(start + 1 + rng.randrange(30_000) for _ in several[1:])]
        facts[key] = Fact(key, start, rng.randrange(40), several[0], ways=tuple(zip(at[1:], several[1:], strict=True)))
        flows[key] = core.add(start, facts[key].nbytes, None, encoded(several), at)
        if rng.random() < 0.2:
            gone = rng.choice(sorted(flows))
            core.retract(flows.pop(gone))
            del facts[gone]
        if flows and rng.random() < 0.2:
            moved = rng.choice(sorted(flows))
            facts[moved].start = rng.randrange(60_000)
            core.retime(flows[moved], facts[moved].start)
        present += rng.randrange(8_000)
        core.advance(present)
    core.advance(1 << 60)
    want = completions(facts, {link: [(0, capacity)] for link, capacity in enumerate(capacities)})
    assert {key: core.completion(flow) for key, flow in flows.items()} == want
