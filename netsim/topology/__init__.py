"""Builds the network: links, servers, switches, and the routes between endpoints.

Comes in: the ``[network]`` table of a cluster file, a networkx graph, or ASTRA-sim's network description. Goes out: a
``Topology``, which never changes. May import: ``netsim.errors``, ``netsim.units``, ``netsim.fields``,
``netsim.json_files``.
"""

from __future__ import annotations

from netsim.topology.description import EVERYTHING, build, load
from netsim.topology.ends import find_links
from netsim.topology.links import Link, LinkPath, LinkTable
from netsim.topology.topology import ServerFacts, Topology, TrafficRules, ecmp

__all__ = [
    "EVERYTHING",
    "Link",
    "LinkPath",
    "LinkTable",
    "ServerFacts",
    "Topology",
    "TrafficRules",
    "build",
    "ecmp",
    "find_links",
    "load",
]
