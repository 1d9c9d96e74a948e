"""Calls of netsim with impossible arguments raise one of its errors; none of them reaches the core."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import netsim
from netsim.collectives import load_params, plan, settings
from netsim.simulation.groups import Group
from netsim.tools import stats
from netsim.topology import graph

SERVER = {"server": {"kind": "nvswitch", "gpus": 8, "gpu_gbps": 3200}}


def network() -> Any:
    """Returns a network with one flow, which has begun."""
    net = netsim.RoutedNetwork(netsim.build(SERVER))
    net.send(0, 1, 1000, 0, ("a", 0))
    return net


def send(*arguments: Any) -> Callable[[], object]:
    return lambda: network().send(*arguments)


def add(*group: Any, **more: Any) -> Callable[[], object]:
    return lambda: network().add(Group(*group, **more), 0, ("k", 0))


def make_plan(*arguments: Any, **more: Any) -> Callable[[], object]:
    return lambda: plan(*arguments, netsim.build(SERVER), load_params("hopper"), **more)


def table(*columns: Any) -> Callable[[], object]:
    return lambda: network().table(*columns)


def play(submit_ns: Any) -> None:
    net = netsim.RoutedNetwork(netsim.build(SERVER))
    net.play(net.table([[0]], [5], [0]), submit_ns=submit_ns)


K = ("k", 0)
CALLS: dict[str, Callable[[], object]] = {
    "no table": lambda: netsim.build(5),  # type: ignore[arg-type]
    "servers are text": lambda: netsim.build(SERVER, "2"),  # type: ignore[arg-type]
    "too many servers": lambda: netsim.build(SERVER, 10**30),
    "endpoint is text": send("0", 1, 5, 0, K),
    "endpoint is a float": send(0.5, 1, 5, 0, K),
    "size is a float": send(0, 1, 1.5, 0, K),
    "size is not a number": send(0, 1, math.nan, 0, K),
    "size is huge": send(0, 1, 10**40, 0, K),
    "start is a float": send(0, 1, 5, 1.5, K),
    "start is huge": send(0, 1, 5, 10**30, K),
    "key cannot be hashed": send(0, 1, 5, 0, [1]),
    "key is of another kind": send(0, 1, 5, 0, "k"),
    "weight is a float": add(5, ((0, 1.5),)),
    "link is a float": add(5, ((0.5, 1),)),
    "latency is huge": add(5, ((0, 1),), latency_ns=10**30),
    "cap is tiny": add(5, ((0, 1),), cap_gbps=1e-300),
    "the present is a float": lambda: network().advance(1.5),
    "the present is text": lambda: network().advance("x"),
    "capacity is text": lambda: network().set_capacity(0, 0, "x"),
    "capacity is tiny": lambda: network().set_capacity(0, 0, 1e-300),
    "capacity from a float": lambda: network().set_capacity(0, 1.5, 5),
    "link by name": lambda: network().set_capacity("x", 0, 5),
    "latency is a float": lambda: network().set_latency(0, 0, 1.5),
    "retime to text": lambda: network().retime(0, "x"),
    "retract a list": lambda: network().retract([1]),
    "GPU by name": lambda: netsim.build(SERVER).gpu("a", 0),  # type: ignore[arg-type]
    "route of text": lambda: netsim.build(SERVER).route("a", "b"),  # type: ignore[arg-type]
    "link of a list": lambda: netsim.build(SERVER).link_id([1]),  # type: ignore[arg-type]
    "plan of text": make_plan("all_reduce", 5, ["a", "b"]),
    "plan of lists": make_plan("all_reduce", 5, [[0], [1]]),
    "plan of a fraction": make_plan("all_reduce", 1.5, [0, 1]),
    "plan of huge data": make_plan("all_reduce", 10**40, [0, 1]),
    "plan with a root in between": lambda: make_plan("broadcast", 5, [0, 1], root=0.5)(),
    "NCCL with digits": lambda: settings.read({"NCCL_MIN_NCHANNELS": "9" * 5000}),
    "NCCL with other digits": lambda: settings.read({"NCCL_BUFFSIZE": "٣"}),
    "columns of text": table([["x"]], [5], [0]),
    "columns of huge numbers": table([[0]], [10**40], [0]),
    "columns of fractions": table([[0]], [1.5], [0]),
    "columns that differ in length": table([[0], [1]], [5], [0]),
    "sizes that no flow has": table([[0]], [1 << 60], [0]),
    "submissions that differ in length": lambda: play(np.array([1, 2, 3])),
    "submissions out of range": lambda: play(np.array([-5])),
    "statistics in no intervals": lambda: stats.take(network(), bins=0),
    "statistics of no time": lambda: stats.take(network(), from_ns=5, to_ns=1),
    "statistics from nowhere": lambda: stats.take(network(), from_ns=math.nan),
    "cable of text": lambda: graph.build(["a"], [("a", "b", "x", 5)]),  # type: ignore[list-item]
}


@pytest.mark.parametrize("name", CALLS)
def test_it_is_refused(name: str) -> None:
    with pytest.raises(netsim.NetsimError) as caught:
        CALLS[name]()
    assert "\n" not in str(caught.value)


def test_numpy_s_integers_are_integers() -> None:
    net = network()
    net.send(np.int64(0), np.int32(1), np.int64(5), np.int64(7), K)
    assert net.advance(np.int64(100))


@pytest.mark.parametrize("fabric", ["leaf-spine", "fat-tree", "dragonfly"])
def test_a_network_that_is_too_large_is_refused_at_once(fabric: str) -> None:
    server = {"kind": "host", "nics": 1, "nic_gbps": 100}
    large = {
        "leaf-spine": {"servers_per_leaf": 1, "spines": 10**6},
        "fat-tree": {"k": 10**5},
        "dragonfly": {"groups": 10**5},
    }
    with pytest.raises(netsim.SpecError, match="more than 1,000,000 links"):
        netsim.build({"server": server, "fabric": {"kind": fabric, **large[fabric]}}, 4)
