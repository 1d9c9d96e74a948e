"""Links of a few rate units: there nearly all levels tie, and rounding decides which link limits whom."""

from __future__ import annotations

import random
from array import array

import pytest

from netsim.native.core import Core, encode
from tests.unit.netsim.oracle import Fact, completions

SPAN = 1 << 50
"""Ticks. A byte at a rate of one unit lasts 1,024 of these, and the latest completion fits the core's clock."""


def facts_of(rng: random.Random, links: int) -> list[Fact]:
    facts = []
    for key in range(rng.randint(2, 14)):
        path = sorted(rng.sample(range(links), rng.randint(1, min(4, links))))
        hops = tuple((link, rng.choice([1, 1, 2])) for link in path)
        facts.append(Fact(key, rng.randrange(60) * SPAN, 1, hops, rng.choice([None, None, rng.randint(12, 40)])))
    return facts


@pytest.mark.parametrize("seed", range(200))
def test_rates_that_tie_are_the_plain_ones_in_any_order(seed: int) -> None:
    rng = random.Random(seed)
    capacities = [rng.randint(12, rng.choice([14, 40, 200])) for _ in range(rng.randint(1, 8))]
    facts = facts_of(rng, len(capacities))
    turned, turns_at, turns_to = rng.randrange(len(capacities)), 30 * SPAN, rng.choice([0, 12, 25])
    steps = {link: [(0, capacity)] for link, capacity in enumerate(capacities)}
    steps[turned].append((turns_at, turns_to))

    core = Core(array("q", capacities))
    flows, present = {}, 0
    for number, key in enumerate(rng.sample(range(len(facts)), len(facts))):
        fact = facts[key]
        flows[key] = core.add(fact.start, fact.nbytes, fact.cap, encode(fact.links))
        if number == 1:
            core.set_capacity(turned, turns_at, turns_to)
        present += rng.randrange(20) * SPAN
        core.advance(present)
    core.advance(1 << 62)
    assert {key: core.completion(flow) for key, flow in flows.items()} == completions(dict(enumerate(facts)), steps)
