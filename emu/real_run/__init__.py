"""One rank of a training script on a real GPU, measured by torch.profiler, with stand-ins for the other ranks.

Comes in: a script, the rank's place in the job, and which steps to trace.
Goes out: a trace, and a JSON file with what was traced.
May import: `emu.contract`; torch and the standard library. Nothing of the emulator is loaded.
"""
