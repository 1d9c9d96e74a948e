"""Where the user's script is, among frames of torch, of libraries and of ours."""

from __future__ import annotations

import os
import runpy
import sys
from typing import TYPE_CHECKING, Any

from .frames import UnknownLayout, find_layout, offsets

if TYPE_CHECKING:
    from .hook_library import Hook

_OUR_FOLDER = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
_STDLIB = os.path.dirname(os.__file__)


def is_ours(filename: str) -> bool:
    """A frame that a plain interpreter would not have had."""
    return filename.startswith(_OUR_FOLDER) or filename in ("<frozen runpy>", runpy.__file__)


def is_packaged(filename: str) -> bool:
    """Of an installed library."""
    return "/site-packages/" in filename or "/dist-packages/" in filename


def is_the_user_s(filename: str) -> bool:
    """Neither ours nor of a library: what the user wrote."""
    return not (is_packaged(filename) or filename.startswith(("<", _STDLIB)) or is_ours(filename))


def tell_sites(hook: Hook) -> None:
    """In the forker, once torch is imported: from now on the library says of calls where they were made.

    If this interpreter's frames cannot be read, it says so in the log and messages go without lines.
    """
    import torch

    try:
        found = offsets(find_layout())
    except (UnknownLayout, OSError) as error:
        print(f"messages will not name lines of the script: {error}", file=sys.stderr)
        return
    if not hook.tell_sites(found, _OUR_FOLDER, _STDLIB, os.path.dirname(torch.__file__)):
        print("messages will not name lines of the script: this interpreter exports too little", file=sys.stderr)


def note_backward_passes(hook: Hook) -> None:
    """Autograd's threads start at the time of the thread that asked for the backward pass, and know no line of the script: it is where the backward pass was asked for.

    The engine's `run_backward` is looked up anew for every pass; noting it then adds no frame to tracebacks.
    """
    from torch._C import _ImperativeEngine
    from torch.autograd import Variable

    class Engine(_ImperativeEngine):  # type: ignore[misc]  # torch gives it no type
        @property
        def run_backward(self) -> Any:
            hook.backward()
            return super().run_backward

    Variable._execution_engine = Engine()
