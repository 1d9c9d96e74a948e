"""Data loaders with worker processes: what depends on the workers' real speed is no host time of the rank.

How often the loader's iterator looks for a batch, in which order batches arrive, and how it waits for its workers' end
differ from run to run. What it does with a batch afterwards is counted as ever. With ``in_order=False`` a program gets
the batches as they arrive; loading them takes no virtual time, so it gets them in order here, too.

Whether the rank sleeps while it waits depends on the workers' speed as well. A rank that sleeps ends its open segments,
and where a segment ends decides when its kernels are booked, so all end before each look for a batch.
"""

from __future__ import annotations

import functools
from typing import Any

from .hook_library import Hook

WAITS = ("_get_data", "_shutdown_workers")
"""Methods of torch's iterator that wait for workers."""
ENTRIES = ("_next_data", "_shutdown_workers")
"""Through which a program comes to them. How often ``_get_data`` is called then depends on the workers' speed."""


def install(hook: Hook) -> None:
    """In the forker, once, after torch is imported."""
    import torch.utils.data.dataloader

    iterator = torch.utils.data.dataloader._MultiProcessingDataLoaderIter
    for name in WAITS:
        setattr(iterator, name, _uncounted(hook, getattr(iterator, name)))
    for name in ENTRIES:
        setattr(iterator, name, _after_segments(hook, getattr(iterator, name)))
    setattr(iterator, "__init__", _in_order(iterator.__init__))  # noqa: B010, as mypy lets no method be assigned


def _in_order(begin: Any) -> Any:
    """An iterator that gives out batches in the order of their indices."""

    @functools.wraps(begin)
    def begin_in_order(self: Any, loader: Any) -> None:
        begin(self, loader)
        self._in_order = True

    return begin_in_order


def _after_segments(hook: Hook, method: Any) -> Any:
    @functools.wraps(method)
    def enter(self: Any) -> Any:
        hook.close_segments()
        return method(self)

    return enter


def _uncounted(hook: Hook, method: Any) -> Any:
    @functools.wraps(method)
    def wait(self: Any) -> Any:
        hook.uncounted(1)
        try:
            return method(self)
        finally:
            hook.uncounted(-1)

    return wait
