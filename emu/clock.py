"""Virtual time inside the script.

`time.time`, `perf_counter`, `monotonic` (and `_ns`) tell the simulated time, `time.sleep` lets simulated time pass.
They are replaced once, in the forker, and follow the state of the process they run in:

    REAL       forker and servers: the functions they replace
    VIRTUAL    a rank: its main thread and torch's autograd threads ask the coordinator
    CONTINUED  a rank's child process, and a rank that said goodbye: on from the last known instant, at real pace

Callers whose timeouts guard real waits (threading, sockets, rendezvous ...) get real time in every state: they would
wait for ever, or not at all. They are told by the module that calls, so it does not matter how or when they imported
`time`. `datetime.now()` and `time.clock_gettime()` are not replaced.
"""

from __future__ import annotations

import enum
import functools
import gc
import os
import sys
import threading
import time
import types
from collections.abc import Callable
from typing import Any, Protocol

PERF_COUNTER_BASE_NS = 1_000 * 10**9
"""perf_counter and monotonic at virtual time 0: the same in every run, so that differences round the same way."""

_POLL_STEP_NS = 50
_POLL_STEP_LIMIT_NS = 1_000_000

# Callers that wait for real things. Packages stand for all of their modules.
REAL_TIME_MODULES = frozenset(
    [
        "_pyio",
        "aiohttp",
        "asyncio",
        "concurrent",
        "filelock",
        "fsspec",
        "grpc",
        "http",
        "httpcore",
        "httpx",
        "huggingface_hub",
        "multiprocessing",
        "portalocker",
        "psutil",
        "queue",
        "ray",
        "requests",
        "selectors",
        "signal",
        "socket",
        "socketserver",
        "ssl",
        "subprocess",
        "tempfile",
        "threading",
        "tornado",
        "triton",
        "urllib",
        "urllib3",
        "uvloop",
        "wandb",
        "zmq",
        "torch._dynamo",
        "torch._inductor",
        "torch.distributed",
        "torch.multiprocessing",
        "torch.utils.data",
    ]
)
LAST_KNOWN_MODULES = frozenset({"logging"})
"""Time stamps are not worth a wait for the other ranks."""


class HookClock(Protocol):
    """What the clock needs of the hook library."""

    @property
    def clock_ns(self) -> Callable[[], int]: ...
    @property
    def host_clock_ns(self) -> Callable[[], int]: ...
    @property
    def advance_ns(self) -> Callable[[int], None]: ...


class State(enum.Enum):
    REAL = enum.auto()
    VIRTUAL = enum.auto()
    CONTINUED = enum.auto()


class Policy(enum.Enum):
    """How a calling module is served."""

    REAL = enum.auto()
    LAST_KNOWN = enum.auto()
    VIRTUAL = enum.auto()


def policy_of(module: str | None) -> Policy:
    name = module or ""
    while name:
        if name in REAL_TIME_MODULES:
            return Policy.REAL
        if name in LAST_KNOWN_MODULES:
            return Policy.LAST_KNOWN
        name = name.rpartition(".")[0]
    return Policy.VIRTUAL


class VirtualClock:
    """The clock of one process. Instants are nanoseconds of virtual time since the run's start."""

    def __init__(self, hook: HookClock) -> None:
        self._hook = hook
        self._state = State.REAL
        self._epoch_ns = 0
        self._last_ns = 0
        self._continued_ns = 0  # what to add to real monotonic time
        self._main_thread = 0
        self._policies: dict[str | None, Policy] = {}
        self._host_ns_after_read = -1
        self._idle_reads = 0
        self._slept = threading.local()
        self._real_monotonic_ns = time.monotonic_ns

    def start(self, epoch_s: int) -> None:
        """In the rank: from now on time is virtual, and time.time() counts from `epoch_s`."""
        self._epoch_ns = epoch_s * 10**9
        self._main_thread = threading.get_ident()
        self._state = State.VIRTUAL

    def stop(self) -> None:
        """Nobody answers any more: time goes on at real pace."""
        if self._state is State.VIRTUAL:
            self._continued_ns = self._last_ns - self._real_monotonic_ns()
            self._state = State.CONTINUED

    # ---- reading ---------------------------------------------------------------------------------------------------
    def _policy(self, module: str | None) -> Policy:
        policy = self._policies.get(module)
        if policy is None:
            policy = self._policies[module] = policy_of(module)
        return policy

    def _read_ns(self, policy: Policy) -> int:
        if self._state is State.CONTINUED:
            return self._real_monotonic_ns() + self._continued_ns
        thread = threading.get_ident()
        if policy is Policy.LAST_KNOWN:
            return self._last_ns
        if thread != self._main_thread and _is_background(thread):
            return max(self._last_ns, getattr(self._slept, "until_ns", 0))
        return self._ask()

    def _ask(self) -> int:
        """The time of this rank's host, when no other rank can change it any more."""
        if self._hook.host_clock_ns() == self._host_ns_after_read:
            # Nothing happened since the last read: a loop that waits for time to pass, which in a simulation it must
            # be given.
            self._idle_reads += 1
            self._hook.advance_ns(min(_POLL_STEP_NS * self._idle_reads, _POLL_STEP_LIMIT_NS))
        else:
            self._idle_reads = 0
        now_ns = self._hook.clock_ns()
        self._host_ns_after_read = self._hook.host_clock_ns()
        self._last_ns = max(self._last_ns, now_ns)
        return self._last_ns

    def _reader(self, real: Callable[[], Any], base_ns: Callable[[], int], seconds: bool) -> Callable[[], Any]:
        @functools.wraps(real)
        def read() -> int | float:
            if self._state is State.REAL:
                return real()  # type: ignore[no-any-return]
            policy = self._policy(sys._getframe(1).f_globals.get("__name__"))
            if policy is Policy.REAL:
                return real()  # type: ignore[no-any-return]
            at_ns = base_ns() + self._read_ns(policy)
            return at_ns / 1e9 if seconds else at_ns

        return read

    # ---- sleeping --------------------------------------------------------------------------------------------------
    def _sleeper(self, real: Callable[[float], None]) -> Callable[[float], None]:
        @functools.wraps(real)
        def sleep(seconds: float, /) -> None:
            caller = sys._getframe(1).f_globals.get("__name__")
            if self._state is not State.VIRTUAL or self._policy(caller) is Policy.REAL:
                real(seconds)
            elif threading.get_ident() != self._main_thread:
                real(seconds)
                begun_ns = max(self._last_ns, getattr(self._slept, "until_ns", 0))
                self._slept.until_ns = begun_ns + int(seconds * 1e9)
            elif seconds > 0:
                # Ends when all ranks have come that far: whatever they did before that instant can be seen.
                self._hook.advance_ns(round(seconds * 1e9))
                self._ask()
            else:
                real(seconds)

        return sleep

    # ---- installation ----------------------------------------------------------------------------------------------
    def install(self) -> None:
        """Replaces the functions of `time`, wherever they are bound already. Once, before the servers are forked."""
        replacements: dict[Any, Any] = {}
        for name in ("time", "perf_counter", "monotonic"):
            base_ns = (lambda: self._epoch_ns) if name == "time" else (lambda: PERF_COUNTER_BASE_NS)
            for suffix in ("", "_ns"):
                real = getattr(time, name + suffix)
                replacements[real] = self._reader(real, base_ns, seconds=not suffix)
        replacements[time.sleep] = self._sleeper(time.sleep)
        for real, replacement in replacements.items():
            setattr(time, real.__name__, replacement)
        _rebind(replacements)
        os.register_at_fork(after_in_child=self.stop)


def _is_background(thread: int) -> bool:
    """A daemon thread of Python's; autograd's threads and other program threads are not."""
    known = threading._active.get(thread)  # type: ignore[attr-defined]
    return known is not None and known.daemon and not isinstance(known, threading._DummyThread)


def _rebind(replacements: dict[Any, Any]) -> None:
    """Modules that said `from time import ...`, functions with a clock as default argument; not real-time ones."""
    for name, module in list(sys.modules.items()):
        if name != "time" and policy_of(name) is Policy.VIRTUAL and not name.startswith(__package__ or "emu"):
            for attribute, value in list(getattr(module, "__dict__", {}).items()):
                if isinstance(value, types.BuiltinFunctionType) and value in replacements:
                    setattr(module, attribute, replacements[value])
    for function in gc.get_objects():  # by type: isinstance would ask proxies for their class
        if type(function) is types.FunctionType and function.__defaults__:
            before = function.__defaults__
            after = tuple(
                replacements.get(value, value) if isinstance(value, types.BuiltinFunctionType) else value
                for value in before
            )
            if after != before and policy_of(function.__module__) is Policy.VIRTUAL:
                function.__defaults__ = after
