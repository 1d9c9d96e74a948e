"""Lets the hook library tell in which line of the script a call was made.

The library reads the calling thread's frames itself (`frame_layout` says how). What it cannot read is set up here: the
folders of libraries, and the line that started a backward pass.
"""

from __future__ import annotations

import os
import sys
from typing import Any

from ..private.changes import Names, changes
from .code_owner import OUR_FOLDER, STDLIB_FOLDER
from .frame_layout import UnknownLayout, find_layout
from .hook_library import Hook


def install(hook: Hook) -> None:
    """Lets the library read frames. Called once, in the forker, when torch is imported. If this interpreter's frames
    cannot be read, it prints so to the forker's log, and messages name no lines.
    """
    import torch

    try:
        layout = find_layout()
    except (UnknownLayout, OSError) as error:
        print(f"error messages will not name lines of the script: {error}", file=sys.stderr)
        return
    if not hook.tell_sites(layout.offsets(), OUR_FOLDER, STDLIB_FOLDER, os.path.dirname(torch.__file__)):
        print(
            "error messages will not name lines of the script: this Python does not export the functions that it takes",
            file=sys.stderr,
        )


def note_backward_passes(hook: Hook) -> None:
    """Notes when a backward pass starts, and at which line. Called in the forker. Autograd's threads take both over:
    they have no frame of the script, and their host time begins where that of the calling thread is.

    Torch looks `run_backward` up in its engine for every pass. The note is made in that look-up, so tracebacks show no
    frame of ours.
    """
    changes.install("backward passes", lambda names: names.change("_execution_engine", lambda _: _noting(hook, names)))


def _noting(hook: Hook, names: Names) -> Any:
    engine_of_torch, run = names.get("_ImperativeEngine"), names.get("run_backward")

    def run_backward(engine: Any) -> Any:
        hook.backward()
        return run.__get__(engine)

    return type("Engine", (engine_of_torch,), {"run_backward": property(run_backward)})()
