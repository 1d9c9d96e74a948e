"""Has the processes of a run note the files on which it depends, if the launcher asks for that.

The library that takes the notes (stub/inputs.c) is loaded before all others, so what was imported before is noted, too.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
from collections.abc import Iterator

from ..contract import isolation
from ..servers.file_system import View


def share(path: str) -> str:
    """Places the notes in a file, where all processes that are forked from now on add theirs. With an empty path
    nothing is noted. Returns why that is impossible; "" if it is not.
    """
    library = ctypes.CDLL(None, use_errno=True)
    if not hasattr(library, "phantora_share_notes"):  # this interpreter was started without it
        return "the library that notes inputs is not loaded" if path else ""
    if library.phantora_share_notes(os.fsencode(path) if path else None):
        return f"{path}: {os.strerror(ctypes.get_errno())}"
    return ""


def program_begins() -> None:
    """Says that this process, and those that it forks, run a program of the user's from now on."""
    library = ctypes.CDLL(None)
    if hasattr(library, "phantora_note_program"):
        library.phantora_note_program()


def other_program_starts(path: str) -> None:
    """Says that a program of the user's starts one that takes no notes: the real interpreter."""
    library = ctypes.CDLL(None)
    if hasattr(library, "phantora_note_started"):
        library.phantora_note_started(os.fsencode(path))


@contextlib.contextmanager
def not_noted() -> Iterator[None]:
    """A context in which nothing that this process does is noted."""
    library = ctypes.CDLL(None)
    if not hasattr(library, "phantora_note"):
        yield
        return
    before = library.phantora_note(0)
    try:
        yield
    finally:
        library.phantora_note(before)


def visible_of_private(seen: View) -> list[str]:
    """Returns the paths below folders that servers have of their own that are this machine's nevertheless."""
    private = [os.path.realpath(folder) for folder in isolation.PRIVATE]
    return [path for path in seen.kept if any(isolation.is_below(path, folder) for folder in private)]
