"""DTensor's sharding propagation: ranks share its results, and it takes a stated host time.

Lives here: what a rank does where DTensor propagates shardings (`propagation`), how a propagation is named and where
results are kept (`results`), and their form (`encoding`).
Comes in: an operator with the shardings of its arguments, which DTensor meets for the first time.
Goes out: the sharding of its result.
May import: `emu.interpreter`, `emu.keeping`; torch and the standard library.
"""
