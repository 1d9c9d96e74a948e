"""Virtual time inside the script.

The clocks of `time`, `datetime.now` and `utcnow` tell the simulated time, `time.sleep` lets simulated time pass. They
are replaced once, in the forker, and follow the state of the process they run in:

    REAL       forker and servers: the functions they replace
    VIRTUAL    a rank: its main thread and torch's autograd threads ask the coordinator
    CONTINUED  a rank's child process, and a rank that said goodbye: on from the last known instant, at real pace

Callers whose timeouts guard real waits (threading, sockets, rendezvous ...) get real time in every state: they would
wait for ever, or not at all. They are told by the module that calls, so it does not matter how or when they imported
`time`. When such a wait on the main thread, made by the script itself (`Event.wait(60)`, `asyncio.sleep(60)`), ends
by its timeout, simulated time passes as well, or a script that waits so for a deadline would wait for ever.

Processor time (`process_time`, `thread_time`) is real.
"""

from __future__ import annotations

import datetime
import enum
import functools
import os
import selectors
import sys
import threading
import time
import timeit
import types
from collections.abc import Callable
from typing import Any, Protocol

from .callers import Policy, is_background, is_of_script, policy_of
from .rebinding import rebind, replace_in_type

PERF_COUNTER_BASE_NS = 1_000 * 10**9
"""perf_counter and monotonic at virtual time 0: the same in every run, so that differences round the same way."""

_POLL_STEP_NS = 50
_POLL_STEP_LIMIT_NS = 1_000_000


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
        if thread != self._main_thread and is_background(thread):
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

    def _since_start_ns(self, caller: types.FrameType) -> int | None:
        """What a clock says to the code that reads it; None: it gets real time."""
        if self._state is State.REAL:
            return None
        policy = self._policy(caller.f_globals.get("__name__"))
        return None if policy is Policy.REAL else self._read_ns(policy)

    def _reader(self, real: Callable[[], Any], base_ns: Callable[[], int], seconds: bool) -> Callable[[], Any]:
        @functools.wraps(real)
        def read() -> int | float:
            since_ns = self._since_start_ns(sys._getframe(1))
            if since_ns is None:
                return real()  # type: ignore[no-any-return]
            at_ns = base_ns() + since_ns
            return at_ns / 1e9 if seconds else at_ns

        return read

    def _reader_by_number(self, real: Callable[[int], Any], seconds: bool) -> Callable[[int], Any]:
        """clock_gettime: calendar time, time since boot, and others, which are left alone."""

        @functools.wraps(real)
        def read(clock: int, /) -> int | float:
            if clock == time.CLOCK_REALTIME:
                base_ns = self._epoch_ns
            elif clock in _SINCE_BOOT:
                base_ns = PERF_COUNTER_BASE_NS
            else:
                return real(clock)  # type: ignore[no-any-return]
            since_ns = self._since_start_ns(sys._getframe(1))
            if since_ns is None:
                return real(clock)  # type: ignore[no-any-return]
            at_ns = base_ns + since_ns
            return at_ns / 1e9 if seconds else at_ns

        return read

    def _converter(self, real: Callable[..., Any], instant_of: Callable[[float], Any], position: int) -> Any:
        """localtime, strftime ...: without an argument at `position` they take now, as `instant_of` says it."""

        @functools.wraps(real)
        def convert(*arguments: Any) -> Any:
            if arguments[position:] in ((), (None,)):
                since_ns = self._since_start_ns(sys._getframe(1))
                if since_ns is not None:
                    arguments = (*arguments[:position], instant_of((self._epoch_ns + since_ns) / 1e9))
            return real(*arguments)

        return convert

    def _datetime_now(self, real: Any) -> Callable[..., datetime.datetime]:
        """datetime.now; `real` is the type's own, to be bound to the class it is called on."""

        @functools.wraps(real)
        def now(cls: type[datetime.datetime], tz: datetime.tzinfo | None = None) -> datetime.datetime:
            since_ns = self._since_start_ns(sys._getframe(1))
            if since_ns is None:
                return real.__get__(None, cls)(tz)  # type: ignore[no-any-return]
            return _moment(cls, self._epoch_ns + since_ns, tz)

        return now

    def _datetime_utcnow(self, real: Any) -> Callable[..., datetime.datetime]:
        @functools.wraps(real)
        def utcnow(cls: type[datetime.datetime]) -> datetime.datetime:
            since_ns = self._since_start_ns(sys._getframe(1))
            if since_ns is None:
                return real.__get__(None, cls)()  # type: ignore[no-any-return]
            return _moment(cls, self._epoch_ns + since_ns, datetime.UTC).replace(tzinfo=None)

        return utcnow

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

    def _waiter(self, real: Callable[..., Any]) -> Callable[..., Any]:
        """Of a method `wait(timeout)` whose result is empty or false if the timeout ended it."""

        @functools.wraps(real)
        def wait(waiting: Any, timeout: float | None = None) -> Any:
            begun_ns = self._real_monotonic_ns()
            result = real(waiting, timeout)
            if (
                timeout is not None
                and timeout > 0
                and not result
                and self._state is State.VIRTUAL
                and threading.get_ident() == self._main_thread
                and self._real_monotonic_ns() - begun_ns >= timeout * 1e9
                and is_of_script(sys._getframe(1))
            ):
                self._hook.advance_ns(round(timeout * 1e9))
            return result

        return wait

    # ---- timing statements -----------------------------------------------------------------------------------------
    def _timing(self, real: Callable[..., float]) -> Callable[..., float]:
        """timeit, and torch.utils.benchmark on top of it. They repeat a statement until it has taken long enough; one
        that costs nothing in the host model never would, so its time on this machine is taken, and passes.
        """

        @functools.wraps(real)
        def timed(timer: timeit.Timer, number: int = 1_000_000) -> float:
            if self._state is not State.VIRTUAL or threading.get_ident() != self._main_thread:
                return real(timer, number)
            read: Callable[[], float] = timer.timer  # type: ignore[attr-defined]
            seen: list[tuple[int, int]] = []

            def look() -> float:
                """Before the repetitions and after them; nearer than `read`, which may take host time itself."""
                first = None if seen else read()
                seen.append((self._hook.host_clock_ns(), self._real_monotonic_ns()))
                return read() if first is None else first

            timer.timer = look  # type: ignore[attr-defined]
            try:
                taken = real(timer, number)
            finally:
                timer.timer = read  # type: ignore[attr-defined]
            (host_ns, real_ns), (host_end_ns, real_end_ns) = seen
            if host_end_ns > host_ns:
                return taken
            self._hook.advance_ns(real_end_ns - real_ns)
            return (real_end_ns - real_ns) / 1e9

        return timed

    # ---- installation ----------------------------------------------------------------------------------------------
    def install(self) -> None:
        """Replaces the functions of `time`, wherever they are bound already. Once, before the servers are forked."""
        replacements: dict[Any, Any] = {}
        for name in ("time", "perf_counter", "monotonic"):
            base_ns = (lambda: self._epoch_ns) if name == "time" else (lambda: PERF_COUNTER_BASE_NS)
            for suffix in ("", "_ns"):
                real = getattr(time, name + suffix)
                replacements[real] = self._reader(real, base_ns, seconds=not suffix)
        for real in (time.clock_gettime, time.clock_gettime_ns):
            replacements[real] = self._reader_by_number(real, seconds=real is time.clock_gettime)
        for real in (time.localtime, time.gmtime, time.ctime):
            replacements[real] = self._converter(real, _seconds, 0)
        replacements[time.asctime] = self._converter(time.asctime, time.localtime, 0)
        replacements[time.strftime] = self._converter(time.strftime, time.localtime, 1)
        replacements[time.sleep] = self._sleeper(time.sleep)
        for real, replacement in replacements.items():
            setattr(time, real.__name__, replacement)
        rebind(replacements)
        replace_in_type(datetime.datetime, now=self._datetime_now, utcnow=self._datetime_utcnow)
        threading.Condition.wait = self._waiter(threading.Condition.wait)  # type: ignore[method-assign]
        selectors.DefaultSelector.select = self._waiter(selectors.DefaultSelector.select)  # type: ignore[method-assign]
        timeit.Timer.timeit = self._timing(timeit.Timer.timeit)  # type: ignore[method-assign]
        os.register_at_fork(after_in_child=self.stop)


_SINCE_BOOT = frozenset(
    getattr(time, name)
    for name in ("CLOCK_MONOTONIC", "CLOCK_MONOTONIC_RAW", "CLOCK_BOOTTIME", "CLOCK_HIGHRES")
    if hasattr(time, name)
)


def _seconds(at_s: float) -> float:
    return at_s


def _moment(cls: type[datetime.datetime], at_ns: int, tz: datetime.tzinfo | None) -> datetime.datetime:
    """As `cls.fromtimestamp`, without a float's rounding."""
    return cls.fromtimestamp(at_ns // 10**9, tz).replace(microsecond=at_ns % 10**9 // 1000)
