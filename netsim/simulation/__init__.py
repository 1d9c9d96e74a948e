"""Flows in time: when each one completes on a topology, whatever the order in which flows and failures are told.

Comes in: a ``Topology``; flows, groups, and changes of links, each with its instant. Goes out: completions, what a
late fact changed, rates over time. May import: ``netsim.native``, ``netsim.topology``, ``netsim.errors``,
``netsim.units``.
"""
