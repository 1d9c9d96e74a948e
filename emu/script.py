"""Where the user's script is, among frames of torch, of libraries and of ours."""

from __future__ import annotations

import os
import runpy
import sys
import threading

_OUR_FOLDER = os.path.dirname(os.path.abspath(__file__))
_STDLIB = os.path.dirname(os.__file__)


def is_ours(filename: str) -> bool:
    """A frame that a plain interpreter would not have had."""
    return filename.startswith(_OUR_FOLDER) or filename in ("<frozen runpy>", runpy.__file__)


def script_line() -> str:
    """`file:line` of the main thread's innermost frame that is neither torch's nor a library's; "" if it has none."""
    frame = sys._current_frames().get(threading.main_thread().ident or 0)
    outermost = ""
    while frame is not None:
        filename = frame.f_code.co_filename
        if not is_ours(filename) and not filename.startswith("<"):
            outermost = f"{filename}:{frame.f_lineno}"
            if "site-packages" not in filename and not filename.startswith(_STDLIB):
                return outermost
        frame = frame.f_back
    return outermost
