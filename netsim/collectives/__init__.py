"""From an operation of NCCL to the flows and the latency it costs.

Comes in: operation, bytes, members, a ``Topology``, and one GPU generation's constants (``generations/*.toml``). Goes
out: a ``Plan``: groups of flows that start after a latency. May import: ``netsim.topology``, ``netsim.simulation``
(for ``Group``), ``netsim.errors``, ``netsim.fields``.
"""

from __future__ import annotations

from netsim.collectives.params import Params, load_params
from netsim.collectives.planner import Plan, plan

__all__ = ["Params", "Plan", "load_params", "plan"]
