"""Speed and exactness: ``python -m netsim.bench --cases DIR``.

Comes in: cases, each a topology with flows and their exact completion times (``cases``). Goes out: deviation, CPU time
and memory of each. May import: ``netsim.simulation``, ``netsim.topology``, ``netsim.errors``, ``netsim.units``.
"""
