"""The coordinator of a run: the event loop in which records arrive and virtual time moves on.

Here: the loop itself (coordinator), connections and back-pressure (intake), ranks that virtual time waits for
(standstill), what the user sees meanwhile (status), how the run ends (run_end), and netsim as the network of virtual
time (network_model).
In: a ``RunSpec``, connections of ranks, exits of their processes, Ctrl-C.
Out: ``Outcome``: the failure, if any, and the report.
Imports: emu.contract, netsim, profiles, errors, wording, run_spec, ingest, virtual_time, liveness, diagnosis, report.
"""
