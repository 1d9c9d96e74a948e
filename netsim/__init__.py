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
(``completion_ns <= now_ns``) before or after the change that differs; None on a side means "not known at the
present" on that side. Whoever drives the simulation takes back what followed from ``before_ns`` and expects
``after_ns``, or a later ``advance``, instead.

Answers are a pure function of the flows and their keys: no order of calls changes a bit of them.

``routed_network(topo)`` has flows that find their way, by ECMP (``RoutedNetwork``) or to the least loaded route
(``AdaptiveNetwork``), and around failing links; ``netsim.stats.take(net)`` tells what happened on the
links; ``Network.play`` runs whole traces; ``python -m netsim.bench`` measures. docs/netsim.md has the rest.
"""

from __future__ import annotations

from netsim import collectives, graph
from netsim.adaptive import AdaptiveNetwork, routed_network
from netsim.errors import CommittedError, FlowError, NetsimError, SpecError, TopologyError
from netsim.groups import Changes, Group, Moved
from netsim.network import Choice, FlowId, Network
from netsim.routed import RoutedNetwork
from netsim.topology import Link, ServerFacts, Topology, build, load

__all__ = [
    "AdaptiveNetwork",
    "Changes",
    "Choice",
    "CommittedError",
    "FlowError",
    "FlowId",
    "Group",
    "Link",
    "Moved",
    "NetsimError",
    "Network",
    "RoutedNetwork",
    "ServerFacts",
    "SpecError",
    "Topology",
    "TopologyError",
    "build",
    "collectives",
    "graph",
    "load",
    "routed_network",
]
