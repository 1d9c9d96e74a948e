"""Single pieces of GPU work that are measured on a real GPU, one signature each.

Comes in: signatures.
Goes out: times.
May import: `emu.contract`; torch and the standard library. Nothing of the emulator is loaded.
"""
