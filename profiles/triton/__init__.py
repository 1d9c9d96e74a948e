"""Finds what a Triton kernel does from its intermediate representation (TTIR).

Lives here: what the text of an operation says (`text`), and an interpreter that follows the addresses of a few
instances of a program (`interpreter`, `values`) and adds up what they load, store and compute (`work`).
Comes in: the text of a program, the launch's grid, its integer arguments.
Goes out: `LaunchWork`, of the whole launch: bytes of memory and of the L2 cache, products, instructions,
rounds of loads.
May import: `formats.ttir`.
"""
