"""Commands that compare the models with real GPUs and hosts: `python -m profiles.tools.trace_error` and others.

Comes in: torch.profiler traces of real jobs, measured host times.
Goes out: tables of errors, on standard output.
May import: all of `profiles`.
"""
