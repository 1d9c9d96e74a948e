"""Turns an operation of NCCL into flows and a latency.

Comes in: operation, bytes, members, a ``Topology``, one GPU generation's constants (``generations/*.toml``), and the
user's ``NcclSettings``. Goes out: a ``Plan``: groups of flows that start after a latency. The way through the modules:
``planner`` asks ``tuner`` for NCCL's choice of algorithm and protocol (``provider_tuners`` may make it), ``channels``
for the division of the bytes, ``timing`` for what the kernel takes, and ``hops`` for the links. ``transfers`` does so
for send and receive. ``memory`` says what a communicator takes of a GPU, ``start`` how long
it takes to make. May import: ``netsim.topology``, ``netsim.simulation`` (for ``Group``), ``netsim.errors``,
``netsim.fields``, ``netsim.units``.
"""

from __future__ import annotations

from netsim.collectives import settings
from netsim.collectives.hops import between
from netsim.collectives.memory import CommunicatorMemory, communicator_memory
from netsim.collectives.params import OPERATIONS, Params, load_params
from netsim.collectives.planner import Plan, plan, slower
from netsim.collectives.settings import NcclSettings
from netsim.collectives.start import Made, Range, start_of_all
from netsim.collectives.transfers import BufferedSend, buffered_send

__all__ = [
    "OPERATIONS",
    "BufferedSend",
    "CommunicatorMemory",
    "Made",
    "NcclSettings",
    "Params",
    "Plan",
    "Range",
    "between",
    "buffered_send",
    "communicator_memory",
    "load_params",
    "plan",
    "settings",
    "slower",
    "start_of_all",
]
