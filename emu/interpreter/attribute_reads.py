"""Notes, in a recorded run, what the script itself reads of its GPU: on another GPU it might have gone another way.

PyTorch asks CUDA once, when it starts, and answers from what it keeps. So the object that it hands out tells what is
read of it. Whose code reads, the hook library finds out (`ph_site_of_reader`).
"""

from __future__ import annotations

import functools
import sys
from typing import Any

from ..private.changes import Names, changes
from .code_owner import Owner, owner_of
from .hook_library import Hook

SHOWN = ("name", "major", "minor", "total_memory", "multi_processor_count", "L2_cache_size")
"""The attributes that the object's text shows."""


def install(hook: Hook) -> None:
    """Makes the properties of GPUs tell that they are read, if the run is recorded. Called once, in the forker, after
    torch is imported.
    """

    def change(names: Names) -> None:
        _tell(hook, names.get("_CudaDeviceProperties"))

    if hook.is_recorded():
        changes.install("what the script reads of its GPU", change)


def _tell(hook: Hook, kind: Any) -> None:
    """Makes the properties of this class tell that they are read."""
    for name, value in list(vars(kind).items()):
        if isinstance(value, property):
            setattr(kind, name, property(functools.partial(_read, hook, name, value), doc=value.__doc__))
    kind.__repr__ = _shown(hook, kind.__repr__)


def _read(hook: Hook, name: str, real: Any, properties: Any) -> Any:
    if owner_of(sys._getframe(1).f_code.co_filename) is not Owner.EMULATION:  # which reads for its own purposes
        hook.script_reads(name)
    return real.__get__(properties)


def _shown(hook: Hook, real: Any) -> Any:
    @functools.wraps(real)
    def __repr__(properties: Any) -> str:
        for name in SHOWN:
            hook.script_reads(name)
        return str(real(properties))

    return __repr__
