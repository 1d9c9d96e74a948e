"""Gives gloo's threads, which versions of PyTorch before 2.15 do not name, a name by which the coordinator knows them.

Without one they have the name of the rank's process. They look for messages a hundred times a second, and nobody could
tell whether the rank that has them works.
"""

from __future__ import annotations

import ctypes
import functools
from typing import Any

from ..private.changes import changes

_PR_SET_NAME, _PR_GET_NAME = 15, 16
_NAME = b"gloo_loop"
_libc = ctypes.CDLL(None)


def install() -> None:
    """Names threads that are started while a process group is made, unless they name themselves. Called once, in the
    forker.
    """
    import torch.distributed

    if torch.distributed.is_available():
        changes.install("gloo's threads", lambda names: names.change("_new_process_group_helper", _naming))


def _naming(real: Any) -> Any:
    @functools.wraps(real)
    def make(*arguments: Any, **options: Any) -> Any:
        own = ctypes.create_string_buffer(16)
        _libc.prctl(_PR_GET_NAME, own, 0, 0, 0)
        _libc.prctl(_PR_SET_NAME, _NAME, 0, 0, 0)  # a thread begins with its creator's name
        try:
            return real(*arguments, **options)
        finally:
            _libc.prctl(_PR_SET_NAME, own, 0, 0, 0)

    return make
