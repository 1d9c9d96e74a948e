"""The processors of a rank's server as the rank sees them, and what data loaders use of them.

Lives here: the number of CPUs that a rank is told (`processors`); data loaders with worker processes (`iterators`).
Comes in: the described server's CPUs; calls of a DataLoader.
Goes out: numbers to the script; host time, to the hook library.
May import: `emu.clock`, `emu.contract`, `emu.interpreter`; torch and the standard library.
"""
