"""Integers that kernels of Triton compute from known ones are computed here, too: counts, offsets, permutations.

Comes in: programs of kernels in Triton's intermediate representation (`program`), and their launches (`launches`).
Goes out: integers in device memory, which are then known. `evaluation` follows a program for all its instances at once;
`operations` has a function for each operation.
"""
