"""CPU-side weights exist once on this machine: ranks that initialise equal tensors share memory.

Lives here: the `store` of values that some rank has computed, and initialisations that look there first
(`initialisation`).
Comes in: a rank's calls of `uniform_`, `normal_` and `torch.nn.init` for large CPU tensors.
Goes out: the same values, in pages that ranks share until one writes to them.
May import: `emu.interpreter`; torch and the standard library.
"""
