"""Timeouts of torch.distributed.rpc do not run out because the emulation is slow, as in timeouts.py for the rest of it.

Its agent, in C++, counts real seconds. They are floats, in which zero means "none" and -1 "the agent's own timeout".
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from ..private.changes import Names, changes

_ADDED_S = 20 * 86_400.0
"""The time that is added to a timeout, in seconds: the agent counts milliseconds in an int, so at most 24.8 days."""
_LONGEST_S = 4 * 86_400.0
_POSITIONS = {
    "api._all_gather": 2,
    "api._invoke_rpc": 5,
    "api._invoke_remote_builtin": 2,
    "api._invoke_remote_python_udf": 3,
    "api._invoke_remote_torchscript": 2,
    "PyRRef.to_here": 1,
}
"""For each function that takes a timeout: the timeout's position among its arguments."""


def install() -> None:
    """Lengthens the timeouts of torch.distributed.rpc. Called once, in the forker."""
    import torch.distributed.rpc

    if torch.distributed.rpc.is_available():
        changes.install("timeouts of RPC", _lengthen_all)


def _lengthen_all(names: Names) -> None:
    own = _OwnTimeout(names.get("api.get_rpc_timeout"), names.get("rpc._set_rpc_timeout"))
    names.change("api._set_and_start_rpc_agent", own.starting)
    names.change("rpc._set_rpc_timeout", lambda _: own.put)
    for module in ("api", "rpc"):
        names.change(f"{module}.get_rpc_timeout", lambda _: own.read)
    for name, position in _POSITIONS.items():
        names.change(name, functools.partial(_lengthening, position=position))


class _OwnTimeout:
    """The agent's own timeout: lengthened in C++, and read back as it was given."""

    def __init__(self, get: Callable[[], float], put: Callable[[float], None]) -> None:
        self._get = get
        self._put = put
        self._given = (0.0, 0.0)
        """The timeout as C++ returns it, which is less exact, and the timeout that the script gave."""

    def put(self, seconds: float) -> None:
        self._put(_lengthened(seconds))
        self._given = self._get(), seconds

    def read(self) -> float:
        value = self._get()
        lengthened, given = self._given
        return given if value == lengthened else value

    def starting(self, real: Callable[[Any], None]) -> Callable[[Any], None]:
        @functools.wraps(real)
        def start(agent: Any) -> None:
            real(agent)
            self.put(self._get())

        return start


def _lengthened(seconds: Any) -> Any:
    """Returns a timeout as C++ gets it; other values are returned as they are."""
    if isinstance(seconds, (int, float)) and 0 < seconds < _LONGEST_S:
        return seconds + _ADDED_S
    return seconds


def _lengthening(real: Callable[..., Any], position: int) -> Callable[..., Any]:
    @functools.wraps(real)
    def lengthening(*arguments: Any, **options: Any) -> Any:
        if position < len(arguments):
            arguments = (*arguments[:position], _lengthened(arguments[position]), *arguments[position + 1 :])
        for name in ("timeout", "rpc_timeout"):
            if name in options:
                options[name] = _lengthened(options[name])
        return real(*arguments, **options)

    return lengthening
