"""Measures what this machine's GPU takes for kernels, and makes tables of measured times.

Comes in: an interpreter that has PyTorch; a script, or signatures.
Goes out: `profiles.Table`, with what the GPU and its software are as origin.
May import: emu.contract, child_process, errors, wording, profiles, profiles.kernel_names, profiles.signature,
profiles.timings. What uses the GPU is in emu.real_run and emu.gpubench.
"""
