"""The work of ranks and links over time: exact, and the same whatever the order of arrival, speculation or portions."""

from __future__ import annotations

import random
import weakref
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import netsim
from netsim import Group
from netsim.collectives import Plan
from netsim.simulation.groups import LinksLess
from phantora_async.figures import TIME_ACCOUNTS
from phantora_async.over_time import (
    Activity,
    Carried,
    LinkTraffic,
    Traffic,
    activity_document,
    link_traffic,
    links_document,
    memory_at,
    parts_for,
    width_for,
)
from phantora_async.over_time.document import LEVELS, MOST_LINKS, MOST_ROWS

from ..virtual_time.programs import MOST, Ahead, Program, eager, never, on_demand, play, programs, write
from ..virtual_time.programs import network as new_network
from ..virtual_time.scripted import Script
from ..virtual_time.scripted import play as scripted_play


def width(parts: int) -> int:
    """Returns the width of the first samples, in ns."""
    return width_for(0, parts)


@settings(max_examples=60)
@given(work=st.lists(st.tuples(st.integers(0, 1 << 26), st.integers(0, 1 << 26)), max_size=40))
@example(work=[(0, 1 << 26)] * 20)
def test_accounts_are_noted_exactly_at_the_multiples_of_a_width(work: list[tuple[int, int]]) -> None:
    """The GPU computes, then nothing, as the host waits for it and sleeps."""
    script, intervals, now_ns = Script(0, 1), [], 0
    for after_ns, for_ns in work:
        script.segment(for_ns, after=after_ns).sync(stream=1)
        intervals.append((now_ns + after_ns, now_ns + after_ns + for_ns))
        now_ns += after_ns + for_ns
    activity = scripted_play([script.bye()]).timeline.activity()
    assert activity.until_ns == now_ns
    width_ns = activity.width_ns
    assert now_ns <= parts_for(1) * width_ns
    assert width_ns in (width(parts_for(1)), 2 * width(parts_for(1))) or now_ns > parts_for(1) * width_ns // 2
    for place, computed_ns in enumerate(activity.accounts[0][0]):
        at_ns = min(place * width_ns, now_ns)
        assert computed_ns == sum(max(0, min(end, at_ns) - start) for start, end in intervals)


@pytest.mark.parametrize("ahead", [eager, on_demand])
def test_speculation_leaves_no_mark(ahead: Ahead) -> None:
    @settings(max_examples=60)
    @given(size=st.integers(1, MOST), program=programs, seed=st.integers(0, 2**32))
    def check(size: int, program: Program, seed: int) -> None:
        one = play(write(size, program, 5_000_000), new_network, seed, ahead, 8).timeline.activity()
        other = play(write(size, program, 5_000_000), new_network, seed + 1, never, 8).timeline.activity()
        assert activity_document(one) == activity_document(other)
        for rank, (accounts, memory) in enumerate(zip(one.accounts, one.memory, strict=True)):
            assert (np.diff(accounts) >= 0).all(), rank
            assert (np.diff(memory) >= 0).all(), rank
            in_parts = np.diff(accounts).sum(0)
            used = np.flatnonzero(in_parts)
            if len(used) > 2:  # from its first use on, all of a GPU's time is told
                assert (in_parts[used[0] + 1 : -1] == one.width_ns * one.devices[rank]).all()

    check()


def activity(rows: list[list[int]], width_ns: int = 100) -> Activity:
    """Returns the activity of ranks that compute for so long in each part and are idle for the rest."""
    ranks = []
    for row in rows:
        compute = np.cumsum([0, *row])
        idle = np.arange(len(compute)) * width_ns - compute
        zero = np.zeros_like(compute)
        ranks.append(np.array([compute, *[zero] * (len(TIME_ACCOUNTS) - 2), idle]))
    memory = [np.zeros((2, len(rows[0]) + 1), np.int64) for _ in rows]
    return Activity(width_ns, width_ns * len(rows[0]), ranks, memory, [1] * len(rows))


def test_ranks_that_did_the_same_share_a_row() -> None:
    document = activity_document(activity([[100, 0], [0, 50], [100, 0]]))
    assert [row["ranks"] for row in document["ranks"]] == [[0, 2], [1]]
    assert [row["compute"] for row in document["ranks"]] == ["/A", "Ag"]
    assert LEVELS.index("g") == 32  # a half of 63, rounded up


def test_of_many_ranks_neighbours_share_a_row() -> None:
    document = activity_document(activity([[number % 100, number // 100] for number in range(1000)]))
    assert len(document["ranks"]) <= MOST_ROWS
    assert [rank for row in document["ranks"] for rank in row["ranks"]] == list(range(1000))


def test_memory_is_told_where_it_changes() -> None:
    it = activity([[1, 1, 1]])
    it.memory[0][0] = [0, 7, 7, 9]
    assert activity_document(it)["ranks"][0]["allocated"] == [[1, 7], [3, 9]]


def test_memory_is_that_of_all_devices_together() -> None:
    changes = np.array([[0, 0, 5, 6], [100, 1, 10, 20], [140, 0, 6, 6], [150, 0, 7, 8]])
    assert memory_at(changes, 100, 350).tolist() == [[5, 15, 17, 17, 17], [6, 26, 28, 28, 28]]
    assert memory_at(np.empty((0, 4), np.int64), 100, 150).tolist() == [[0, 0, 0], [0, 0, 0]]


def carried(links: Sequence[tuple[int, int]], nbytes: int, start_ns: int, done_ns: int) -> Carried:
    return Carried(Plan("ring", "simple", 1, 0, (Group(nbytes, links),)), start_ns, done_ns)


_SHARED = (0, 1), (1, 3), (7, 2)
_LINKS = st.sampled_from(
    [
        ((0, 1), (1, 1)),
        ((1, 2),),
        ((2, 1), (2, 1), (5, 3)),
        LinksLess(_SHARED, ((7, 2),)),
        LinksLess(_SHARED, ((1, 2),)),
    ]
)
_TRAFFIC = st.lists(
    st.builds(
        lambda links, nbytes, start_ns, for_ns: carried(links, nbytes, start_ns, start_ns + for_ns),
        _LINKS,
        st.integers(1, 10**9),
        st.integers(0, 10**9),
        st.integers(0, 10**8),
    ),
    max_size=30,
)


@given(traffic=_TRAFFIC, seed=st.integers(0, 2**32), cut=st.integers(0, 30))
def test_sums_of_links_do_not_depend_on_the_order(traffic: list[Carried], seed: int, cut: int) -> None:
    one, other = LinkTraffic(4), LinkTraffic(4)
    for it in traffic:
        one.add(it)
    random.Random(seed).shuffle(traffic)
    for number, it in enumerate(traffic[:cut]):
        other.add(it)
        other.traffic()
        if number % 3 == 0:
            other._settle()  # as if there were too many groups
    found, again = one.traffic(), other.traffic(traffic[cut:])
    assert (found.width_ns, list(found.links)) == (again.width_ns, list(again.links))
    assert np.array_equal(found.nbytes, again.nbytes)
    assert set(found.links) == {link for it in traffic for group in it.plan.groups for link, _ in group.links}
    whole = dict.fromkeys(found.links, 0)
    for it in traffic:
        for group in it.plan.groups:
            for link, weight in group.links:
                whole[link] += group.nbytes * weight
    assert dict(zip(found.links, found.nbytes.sum(0).tolist(), strict=True)) == whole


def test_links_that_wait_to_be_added_up_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    class OwnLinks(list[tuple[int, int]]):
        """A list that can be watched."""

        __hash__ = object.__hash__  # type: ignore[assignment]

    monkeypatch.setattr(link_traffic, "MOST_KEPT_LINKS", 30)
    watched: weakref.WeakSet[OwnLinks] = weakref.WeakSet()
    it = LinkTraffic(4)
    for _ in range(20):
        links = OwnLinks((link, 1) for link in range(10))
        watched.add(links)
        it.add(carried(links, 100, 0, 100))
    del links
    assert len(watched) == 0
    assert it.traffic().nbytes.sum() == 20 * 10 * 100


def test_links_that_carried_the_same_share_a_row() -> None:
    it = LinkTraffic(8)
    it.add(carried(tuple((link, 1) for link in range(1000)), 10, 0, 1))
    it.add(carried(tuple((link, 3) for link in range(500, 1000)), 7, 0, 1))
    it.add(carried(((5, 2),), 1, 0, 1))
    found = it.traffic()
    assert found.courses[found.course_of][:, 0].tolist() == [10] * 5 + [12] + [10] * 494 + [31] * 500
    assert len(found.courses) == 4  # that of links which carry nothing, too


def test_a_collective_is_spread_evenly_over_its_time() -> None:
    it = LinkTraffic(8)
    it.add(carried(((3, 2),), 1000, width(8) // 2, 2 * width(8) + width(8) // 2))
    assert it.traffic().nbytes[:4, 0].tolist() == [500, 1000, 500, 0]


def test_links_are_summed_up_by_kind_and_the_busiest_are_listed() -> None:
    links = [netsim.Link(f"node{number:03}/gpu{port}:out", 80) for number in range(20) for port in range(8)]
    courses = np.zeros((len(links), 4), np.int64)
    courses[:, 0] = np.arange(len(links))
    document = links_document(400, links, Traffic(100, range(len(links)), courses, np.arange(len(links))))
    assert [(kind["kind"], kind["links"]) for kind in document["kinds"]] == [("node#/gpu#:out", 160)]
    assert [row["name"] for row in document["listed"]] == [link.name for link in links[-MOST_LINKS:]]
    assert document["kinds"][0]["max_share"] == pytest.approx(159 / (10 * 400))
    assert document["links"] == 160


@given(st.integers(1, 20_000))
def test_more_ranks_have_fewer_parts(world_size: int) -> None:
    assert parts_for(world_size) >= parts_for(world_size + 1)
    assert parts_for(world_size).bit_count() == 1


@given(until_ns=st.integers(1, 1 << 60))
def test_the_width_fits_what_has_been_simulated(until_ns: int) -> None:
    width_ns = width_for(until_ns, 128)
    assert until_ns <= 128 * width_ns
    assert width_ns == width(128) or until_ns > 64 * width_ns


def test_widths_grow() -> None:
    assert all(one <= two for one, two in pairwise(width_for(1 << power, 128) for power in range(50)))
