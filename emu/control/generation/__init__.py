"""Sampled tokens, which nobody computes: each response has its end token at the length that `--lengths` states.

Comes in: the loops of programs that generate text, and the tokens that they sample. Goes out: known tokens in the place
of unknown ones; BATCH and GENERATION records.
May import: `emu.contract.policies`, `emu.interpreter`, `emu.private`, and of `emu.control` what knows tensors.
"""
