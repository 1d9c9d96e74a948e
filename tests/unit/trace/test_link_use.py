"""Rates of links from collectives, told by several members and out of order."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from netsim import Group
from netsim.collectives import Plan
from phantora_async.trace.link_use import LinkUse
from phantora_async.trace.spans import Moved
from phantora_async.trace.writing import Context
from phantora_async.virtual_time import Collective, Comm

COMM = Comm(1, (0, 1), (0, 1), {0: 0, 1: 1}, "world")


def moved(seq: int, begun_ns: int, done_ns: int) -> Moved:
    return Moved(Collective(COMM, seq, 1, 7, 0, 100, 0, (0, 1)), begun_ns, done_ns, 0)


def test_rates_add_up_and_each_collective_counts_once() -> None:
    plan = Plan("ring", "simple", 1, 0, (Group(1000, ((3, 1), (4, 2))),))
    context = cast(Context, SimpleNamespace(plan=lambda _: plan, traced={0, 1}))
    changes: list[Any] = []
    use = LinkUse(context, lambda *change: changes.append(change))
    for one in (moved(2, 50, 150), moved(1, 0, 100), moved(1, 0, 100), moved(2, 50, 150)):
        use.add(one)
    use.close()
    assert [change for change in changes if change[0] == 3] == [
        (3, 0, 80.0),
        (3, 50, 160.0),
        (3, 100, 80.0),
        (3, 150, 0),
    ]
    assert [change[2] for change in changes if change[0] == 4] == [160.0, 320.0, 160.0, 0]
