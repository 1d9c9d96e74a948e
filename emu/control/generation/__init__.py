"""Responses that programs generate: when each of them arrives, has tokens and ends; and sampled tokens, which nobody
computes: each response has its end token at the length that `--lengths` states.

Comes in: the loops of programs that generate text, and the tokens that they sample. Goes out: BATCH, RESPONSE,
KV_BLOCKS and GENERATION records; known tokens in the place of unknown ones.
May import: `emu.contract`, `emu.interpreter`, `emu.private`, and of `emu.control` what knows tensors.
"""
