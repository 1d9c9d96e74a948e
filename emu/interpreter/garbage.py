"""Adds the time that `gc.collect` takes on the host.

It looks at all objects of the process. A process that has imported torch has some 260,000, and looking at them takes
longer than a training step: on a cluster, NCCL's watchdog finds meanwhile what is done. Ranks share these objects and
leave them out (`gc.freeze`), so what they would take is added. Collections that Python begins itself are not counted.

The objects that a rank itself has made are not counted either. How many there are depends on this machine: a rank that
is faster than the others computes for all of them (DTensor's sharding propagation, compiled code), and the others read
the result. Virtual time must not depend on which rank that was.
"""

from __future__ import annotations

import gc

from .hook_library import Hook

COLLECTION_NS = 130_000_000
"""Host time of a collection, for the objects of torch and of what training scripts import of it: 120 to 150 ms on
machines with H200s (PyTorch 2.11, 258,000 objects).
"""
OLDEST = 2


def install(hook: Hook) -> None:
    """Replaces `gc.collect` by a function that also takes this time. Called once, in the forker."""
    real = gc.collect

    def collect(generation: int = OLDEST) -> int:
        found = real(generation)
        if generation >= OLDEST:
            hook.host_collects(COLLECTION_NS)
        return found

    collect.__doc__ = real.__doc__
    gc.collect = collect
