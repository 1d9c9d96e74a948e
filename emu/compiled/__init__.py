"""Integers that kernels of Triton compute from known ones are computed here, too: counts, offsets, permutations.

Lives here: programs that are worth following (`integer_stores`), a function for each operation (`operations`), a
program followed for all its instances at once (`evaluation`), with reductions and scans (`combining`), what a launch
computed, for later ones (`steps`), the addresses that it touches (`places`), and launches (`launches`).
Comes in: from the hook, launches of kernels with a program.
Goes out: integers in device memory, which are then known.
May import: `emu.formats.ttir`, `emu.control.control_tensors`, `emu.control.host_views`, `emu.interpreter`.
"""
