"""Compares simulated with measured jobs: runs the jobs of a truth file in emulation and compares them with what real
GPUs did.

Comes in: truth files (JSON lines that a job script printed on real GPUs), the script, traces of torch.profiler.
Goes out: rows of comparison, as text, JSON, Markdown and a picture.
May import: child_process, errors, netsim, profiles. Runs are made by the command itself, in processes of their own.
"""
