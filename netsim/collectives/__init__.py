"""From a collective operation to the flows and the latency it costs."""

from __future__ import annotations

from netsim.collectives.params import Params, load_params
from netsim.collectives.planner import Plan, plan

__all__ = ["Params", "Plan", "load_params", "plan"]
