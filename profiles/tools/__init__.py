"""Commands that compare the models with traces of real GPUs: `python -m profiles.tools.trace_error`, for example.

Comes in: torch.profiler traces of real jobs.
Goes out: tables of errors, on standard output.
May import: all of `profiles`.
"""
