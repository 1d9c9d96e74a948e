"""The hook library's C functions, as Python calls them.

Lives here: ``Hook``, the loaded library (`hook`), which has the calls of one module per subject: the process and its
steps (`process`), its clock and host time (`host_time`), lines of the script and loops (`script_lines`), ranges of ops
(`ranges`), kernels and their programs (`kernels`), memory at its peak (`memory`), known bytes of the device (`data`),
functions that run when bytes have arrived (`actions`), bytes that are made when they are read (`sources`).
`library` loads the library and declares a function; `recipes` reads what other ranks say of their values.
Comes in: the path of the library.
Goes out: a ``Hook``; its callbacks, on any thread.
May import: `emu.contract`; the standard library.
"""

from .hook import Hook
from .library import HookError

__all__ = ["Hook", "HookError"]
