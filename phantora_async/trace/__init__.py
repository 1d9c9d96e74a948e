"""The trace of a run: what ranks, streams, collectives and links did, as files for other tools. See docs/seeing.md.

Lives here: the trace of one rank as spans (rank_trace, placement, spans), of all
ranks (run_trace), the writers of the two forms (chrome, perfetto) with what they share (writing, names, link_use), and
what the profilers of scripts are told (profile).
Comes in: events of ``virtual_time``, once they are final; costs by key; the cluster's plans of collectives.
Goes out: files, while the run goes on; records for ranks whose scripts run a profiler.
May import: emu.contract, netsim, profiles, errors, wording, run_spec, trace_request, ingest, virtual_time.
"""
