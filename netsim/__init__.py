"""netsim: a flow-level network simulator, exact, with late arrivals.

    import netsim

    topo = netsim.build({"server": {"kind": "nvswitch", "gpus": 8, "gpu_gbps": 3200}}, servers=1)
    params = netsim.collectives.load_params("hopper")
    plan = netsim.collectives.plan("all_reduce", 1 << 30, [topo.gpu(0, i) for i in range(8)], topo, params)
    net = netsim.Network(topo)
    changes = [net.add(group, start_ns + plan.latency_ns, key=(comm, seq, i)) for i, group in enumerate(plan.groups)]
    net.next_completion()      # (ns, flow): the earliest completion if nothing else is added
    net.advance(to_ns)         # moves the present; [(ns, flow)] of the completions in (old, to_ns], by (ns, key)

A collective is done when its last group is, or at ``start + latency_ns`` if it has none. Everything is integer
nanoseconds; a completion is the first whole nanosecond that is not before the last byte's arrival, so what it
triggers is never early.

``add``, ``retime`` and ``retract`` may concern the past down to the committed horizon. They return ``Changes(flow,
moved)``: ``moved`` holds a ``Moved(flow, before_ns, after_ns)`` for every completion known at the present
(``completion_ns <= now_ns``) before or after the change that differs; None means "not known at the
present". The caller takes back what followed from ``before_ns`` and expects ``after_ns``, or a later ``advance``,
instead.

Answers are a pure function of the flows and their keys: the order of calls does not change them.

``RoutedNetwork(topo)`` has ``send``, which routes a flow by ECMP, and around links that are down. docs/netsim.md has
the rest.

The packages, in the order in which they may import each other:

    native/       the solver, in C, and its bindings
    topology/     links, servers, switches and the routes between endpoints
    simulation/   flows in time
    collectives/  from an operation of NCCL to flows and latency
    tools/        statistics, traces, pictures, accuracy
    bench/        speed and exactness: python -m netsim.bench

Comes in: a description of the network; flows, and changes of links, each with its instant.
Goes out: completions, and which completions moved after a late fact.
May import: nothing of ours outside this folder.

The packages share ``errors``, ``units`` (the fixed-point numbers) and ``fields`` (reading TOML tables).
"""

from __future__ import annotations

from netsim import collectives
from netsim.collectives import NcclSettings
from netsim.errors import CommittedError, FlowError, NetsimError, SpecError, TopologyError
from netsim.simulation.groups import Changes, Group, LinksLess, Moved
from netsim.simulation.network import Choice, FlowId, Network
from netsim.simulation.routed import RoutedNetwork
from netsim.topology import Link, ServerFacts, Topology, build, find_links, load

__all__ = [
    "Changes",
    "Choice",
    "CommittedError",
    "FlowError",
    "FlowId",
    "Group",
    "Link",
    "LinksLess",
    "Moved",
    "NcclSettings",
    "NetsimError",
    "Network",
    "RoutedNetwork",
    "ServerFacts",
    "SpecError",
    "Topology",
    "TopologyError",
    "build",
    "collectives",
    "find_links",
    "load",
]
