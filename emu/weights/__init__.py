"""CPU-side weights exist once on this machine: ranks that would compute equal tensors share memory.

Lives here: the `store` of values that some rank has computed (with `machine` and `pages` below it), and
calls of torch that look there first: `initialisation`, `copies` and conversions, `loading`. `tensors` says which
tensors qualify; `installation` changes torch.
Comes in: a rank's calls for large CPU tensors.
Goes out: the same values, in pages that ranks share until one writes to them.
May import: `emu.interpreter`, `emu.keeping`; torch and the standard library.
"""
