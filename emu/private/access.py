"""Reads objects by private names, with one function for each name: whoever needs it calls these functions.

The names stand in the table, so that `phantora-async doctor` tells where a version lacks them.
"""

from __future__ import annotations

import runpy
import threading
from typing import Any

from .changes import changes


def schema_of(operation: Any) -> Any:
    """Returns the schema of an operator's overload (torch._ops.OpOverload): its arguments and results."""
    return operation._schema


def overload_name(operation: Any) -> str:
    return str(operation._overloadname)


def backend_of(group: Any, device: Any) -> Any:
    """Returns the backend of a process group for tensors on this device."""
    return group._get_backend(device)


def is_daemon_thread(thread: int) -> bool:
    """Tells whether it is a daemon thread that Python started. Autograd's threads are not: Python knows them as
    dummies.
    """
    if changes.usable("daemon threads") is None:
        return False
    known = threading._active.get(thread)  # type: ignore[attr-defined]
    return known is not None and known.daemon and not isinstance(known, threading._DummyThread)


def run_as_main(module: str, *, alter_argv: bool = True) -> None:
    """Runs a module as `python -m` does."""
    if changes.usable("modules as scripts") is None:
        runpy.run_module(module, run_name="__main__", alter_sys=True)
    else:
        runpy._run_module_as_main(module, alter_argv=alter_argv)  # type: ignore[attr-defined]
