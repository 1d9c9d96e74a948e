"""`Work.is_completed`: Python code asks, and may decide by the answer.

Otherwise the question looks as if PyTorch's own C++ code asked, which lets go of what finished work held. The two are
simulated differently, so they are told apart in every run: a recorded one is as one that is not.
"""

from __future__ import annotations

import functools
from typing import Any

from ..private.changes import Names, changes
from .hook_library import Hook


def install(hook: Hook) -> None:
    """Marks questions for finished work that Python code asks. Called once, in the forker, after torch is imported."""
    import torch.distributed

    def change(names: Names) -> None:
        names.change("Work.is_completed", functools.partial(_asked_by_python, hook))

    if torch.distributed.is_available():
        changes.install("questions for finished work", change)


def _asked_by_python(hook: Hook, real: Any) -> Any:
    @functools.wraps(real)
    def is_completed(self: Any) -> bool:
        hook.python_asks(1)
        try:
            return bool(real(self))
        finally:
            hook.python_asks(-1)

    return is_completed
