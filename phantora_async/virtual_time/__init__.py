"""Virtual time: one discrete-event simulation of hosts, streams, collectives and flows. See docs/virtual-time.md."""

from phantora_async.virtual_time.collectives import Fabric, Revised
from phantora_async.virtual_time.facts import Comm, Gathering, GatheringFact, LaunchFact, Meeting
from phantora_async.virtual_time.policy import EAGER, NEVER, ON_DEMAND, POLICIES, Policy
from phantora_async.virtual_time.timeline import Stop, Timeline

__all__ = [
    "EAGER",
    "NEVER",
    "ON_DEMAND",
    "POLICIES",
    "Comm",
    "Fabric",
    "Gathering",
    "GatheringFact",
    "LaunchFact",
    "Meeting",
    "Policy",
    "Revised",
    "Stop",
    "Timeline",
]
