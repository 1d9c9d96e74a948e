"""The coordinator of a run: the event loop in which records arrive and virtual time moves on.

Lives here: what the session talks to (coordinator), virtual time with what feeds it and listens to it (simulation),
the ranks' processes (rank_processes, ranks), turns of virtual time (turns), ranks that it waits for (standstill), what
the user sees meanwhile (status), what becomes of failures (failures), how the run ends (run_end), and netsim as the
network of virtual time (network_model).
Comes in: a ``RunSpec``, connections of ranks, exits of their processes, Ctrl-C.
Goes out: ``Outcome``: the failure, if any, and the report.
May import: emu.contract, netsim, profiles, entrance, errors, wording, run_spec, ingest, virtual_time, liveness,
diagnosis, report.
"""
