"""Gathers and scatters over NCCL, which PyTorch makes of sends and receives: NCCL's calls do not tell.

A mirrored rank sends to the root to which its representative sends, as in every collective. To another rank, as in a
pipeline or a ring, it sends as far as its representative does. So the hook library is told which of the two it is.
"""

from __future__ import annotations

import functools
from typing import Any

from ..contract.records import MessageKind
from ..interpreter.hook_library import Hook
from ..private.changes import Names


def change(names: Names, hook: Hook) -> None:
    """Changes the two functions that all of torch.distributed's gathers and scatters call, so that they tell which they
    are.
    """
    names.change("ProcessGroup.gather", lambda real: _telling(real, MessageKind.OF_GATHER, hook))
    names.change("ProcessGroup.scatter", lambda real: _telling(real, MessageKind.OF_SCATTER, hook))


def _telling(real: Any, kind: int, hook: Hook) -> Any:
    @functools.wraps(real)
    def method(*arguments: Any, **options: Any) -> Any:
        hook.messages_of(kind)
        try:
            return real(*arguments, **options)
        finally:
            hook.messages_of(0)

    return method
