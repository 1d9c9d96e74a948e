"""Decides which versions of Python and PyTorch can run ranks; docs/versions.md says which were tried.

It is imported before the rest of this package, by any interpreter that the user names: it loads in Python 3.8, too.
"""

from __future__ import annotations

import platform
import re
import socket
import sys
import sysconfig

from ..contract.messages import ControlSocket

OLDEST_PYTHON = (3, 11)
OLDEST_TORCH = (2, 9)


class Unsupported(Exception):
    """Raised if a version is not supported. The message says what, `hint` what to install."""

    def __init__(self, message: str, hint: str) -> None:
        super().__init__(message)
        self.hint = hint


def check_python() -> None:
    """Checks this interpreter. Raises Unsupported if it cannot run ranks."""
    needed = ".".join(map(str, OLDEST_PYTHON))
    hint = f"install PyTorch for another Python and name its interpreter: --python PATH (Python {needed} or newer)"
    if sys.implementation.name != "cpython":
        raise Unsupported(f"{sys.executable} is {platform.python_implementation()}; ranks need CPython", hint)
    if sys.version_info < OLDEST_PYTHON:
        raise Unsupported(
            f"{sys.executable} is Python {platform.python_version()}; ranks need Python {needed} or newer", hint
        )
    if sysconfig.get_config_var("Py_GIL_DISABLED"):
        raise Unsupported(
            f"{sys.executable} is a free-threaded build of Python {platform.python_version()}; ranks need a build with "
            "the global interpreter lock",
            hint,
        )


def check_torch(version: str) -> None:
    """Checks the version of PyTorch, such as 2.15.0+cu132. Raises Unsupported if it is too old. A version of another
    form is not judged.
    """
    found = re.match(r"(\d+)\.(\d+)", version)
    if found and (int(found[1]), int(found[2])) < OLDEST_TORCH:
        needed = ".".join(map(str, OLDEST_TORCH))
        raise Unsupported(
            f"the PyTorch of {sys.executable} is version {version}; ranks need PyTorch {needed} or newer",
            f"install a newer one (a CUDA build, no GPU needed): {sys.executable} -m pip install --upgrade torch",
        )


def accept_python(fileno: int) -> bool:
    """Tells whether this interpreter can run ranks; if it cannot, says so on the control socket that comes with the
    first request. Called first of all; `fileno` is the socket of requests.
    """
    try:
        check_python()
    except Unsupported as error:
        descriptors = ControlSocket(socket.socket(fileno=fileno)).receive_with()[1]
        if descriptors:
            control = ControlSocket(socket.socket(fileno=descriptors[0]))
            control.receive()  # the job: the launcher would read an error, if the socket closed with something unread
            control.send("failed", message=str(error), hint=error.hint)
        return False
    return True
