"""Replaces Python's time functions by those of a `VirtualClock`.

Replaced are the clocks and conversions of `time`, `time.sleep`, `datetime.now` and `utcnow`, the waits below
`threading`, `queue` and `asyncio`, and `timeit`. Processor time (`process_time`, `thread_time`) stays real.
"""

from __future__ import annotations

import datetime
import functools
import selectors
import sys
import threading
import time
import timeit
from collections.abc import Callable
from typing import Any, NamedTuple

from ..interpreter import real_time
from .callers import is_called_by_user
from .rebinding import Bindings, replace_in_type
from .virtual_clock import VirtualClock

PERF_COUNTER_BASE_NS = 1_000 * 10**9
"""perf_counter and monotonic at virtual time 0: the same in every run, so that differences round the same way."""
_SINCE_BOOT = frozenset(
    getattr(time, name)
    for name in ("CLOCK_MONOTONIC", "CLOCK_MONOTONIC_RAW", "CLOCK_BOOTTIME", "CLOCK_HIGHRES")
    if hasattr(time, name)
)
_REPLACED = frozenset(
    getattr(time, name)
    for name in (
        *("time", "time_ns", "perf_counter", "perf_counter_ns", "monotonic", "monotonic_ns"),
        *("clock_gettime", "clock_gettime_ns", "localtime", "gmtime", "ctime", "asctime", "strftime", "sleep"),
    )
)
"""The functions of `time` that are replaced."""


def bindings() -> Bindings:
    """Notes where the time functions are bound now. Called before anything is frozen."""
    noted = Bindings()
    noted.note(_REPLACED)
    return noted


def install(clock: VirtualClock, bound: Bindings) -> None:
    """Replaces the time functions wherever they are bound already. Called once, in the forker. `clock` decides in every
    process which time they return; `bound`: where they were bound earlier.
    """
    replacements: dict[Any, Any] = {}
    for name in ("time", "perf_counter", "monotonic"):
        base_ns = (lambda: clock.epoch_ns) if name == "time" else (lambda: PERF_COUNTER_BASE_NS)
        for suffix in ("", "_ns"):
            real = getattr(time, name + suffix)
            replacements[real] = _reader(clock, real, base_ns, seconds=not suffix, is_monotonic=name == "monotonic")
    for real in (time.clock_gettime, time.clock_gettime_ns):
        replacements[real] = _reader_by_clock_id(clock, real, seconds=real is time.clock_gettime)
    for real in (time.localtime, time.gmtime, time.ctime):
        replacements[real] = _converter(clock, real, _seconds, 0)
    replacements[time.asctime] = _converter(clock, time.asctime, time.localtime, 0)
    replacements[time.strftime] = _converter(clock, time.strftime, time.localtime, 1)
    replacements[time.sleep] = _sleeper(clock)
    assert replacements.keys() == _REPLACED, "else nobody has looked where one of them is bound"
    for real, replacement in replacements.items():
        setattr(time, real.__name__, replacement)
    bound.rebind(replacements)
    replace_in_type(
        datetime.datetime,
        now=functools.partial(_datetime_now, clock),
        utcnow=functools.partial(_datetime_utcnow, clock),
    )
    threading.Condition.wait = _waiter(clock, threading.Condition.wait)  # type: ignore[method-assign]
    selectors.DefaultSelector.select = _waiter(clock, selectors.DefaultSelector.select)  # type: ignore[method-assign]
    timeit.Timer.timeit = _timing(clock, timeit.Timer.timeit)  # type: ignore[method-assign]
    clock.follow_forks()


# ---- reading --------------------------------------------------------------------------------------------------------
def _reader(
    clock: VirtualClock, real: Callable[[], Any], base_ns: Callable[[], int], seconds: bool, is_monotonic: bool
) -> Callable[[], Any]:
    @functools.wraps(real)
    def read() -> int | float:
        since_start_ns = clock.read_ns(sys._getframe(1))
        if since_start_ns is None:
            at_ns = clock.read_for_waits_ns(sys._getframe(1)) if is_monotonic else None
            if at_ns is None:
                return real()
            return at_ns / 1e9 if seconds else at_ns
        at_ns = base_ns() + since_start_ns
        return at_ns / 1e9 if seconds else at_ns

    return read


def _reader_by_clock_id(clock: VirtualClock, real: Callable[[int], Any], seconds: bool) -> Callable[[int], Any]:
    """Makes the replacement of clock_gettime: calendar time and time since boot are virtual, other clocks stay real."""

    @functools.wraps(real)
    def read(clock_id: int, /) -> int | float:
        if clock_id == time.CLOCK_REALTIME:
            base_ns = clock.epoch_ns
        elif clock_id in _SINCE_BOOT:
            base_ns = PERF_COUNTER_BASE_NS
        else:
            return real(clock_id)
        since_start_ns = clock.read_ns(sys._getframe(1))
        if since_start_ns is None:
            return real(clock_id)
        at_ns = base_ns + since_start_ns
        return at_ns / 1e9 if seconds else at_ns

    return read


def _converter(
    clock: VirtualClock, real: Callable[..., Any], as_argument: Callable[[float], Any], position: int
) -> Any:
    """Makes the replacement of localtime, strftime ...: without an argument at `position` they convert the time now. It
    is passed to them there, as `as_argument` makes it of seconds since 1970.
    """

    @functools.wraps(real)
    def convert(*arguments: Any) -> Any:
        if arguments[position:] in ((), (None,)):
            since_start_ns = clock.read_ns(sys._getframe(1))
            if since_start_ns is not None:
                arguments = (*arguments[:position], as_argument((clock.epoch_ns + since_start_ns) / 1e9))
        return real(*arguments)

    return convert


def _seconds(at_s: float) -> float:
    return at_s


def _datetime_now(clock: VirtualClock, real: Any) -> Callable[..., datetime.datetime]:
    """Makes the replacement of datetime.now; `real` is the type's own, to be bound to the class it is called on."""

    @functools.wraps(real)
    def now(cls: type[datetime.datetime], tz: datetime.tzinfo | None = None) -> datetime.datetime:
        since_start_ns = clock.read_ns(sys._getframe(1))
        if since_start_ns is None:
            return real.__get__(None, cls)(tz)
        return _datetime_at(cls, clock.epoch_ns + since_start_ns, tz)

    return now


def _datetime_utcnow(clock: VirtualClock, real: Any) -> Callable[..., datetime.datetime]:
    @functools.wraps(real)
    def utcnow(cls: type[datetime.datetime]) -> datetime.datetime:
        since_start_ns = clock.read_ns(sys._getframe(1))
        if since_start_ns is None:
            return real.__get__(None, cls)()
        return _datetime_at(cls, clock.epoch_ns + since_start_ns, datetime.UTC).replace(tzinfo=None)

    return utcnow


def _datetime_at(cls: type[datetime.datetime], at_ns: int, tz: datetime.tzinfo | None) -> datetime.datetime:
    """Returns `cls.fromtimestamp(at_ns / 1e9, tz)` without a float's rounding."""
    return cls.fromtimestamp(at_ns // 10**9, tz).replace(microsecond=at_ns % 10**9 // 1000)


# ---- sleeping and waiting -------------------------------------------------------------------------------------------
def _sleeper(clock: VirtualClock) -> Callable[[float], None]:
    @functools.wraps(real_time.sleep)
    def sleep(seconds: float, /) -> None:
        clock.sleep(seconds, sys._getframe(1))

    return sleep


def _waiter(clock: VirtualClock, real: Callable[..., Any]) -> Callable[..., Any]:
    """Wraps a method `wait(timeout)` that returns something empty or false when its timeout has ended it: then virtual
    time passes as well, if the script made the wait itself on its main thread.
    """

    @functools.wraps(real)
    def wait(waiting: Any, timeout: float | None = None) -> Any:
        began_ns = real_time.monotonic_ns()
        result = real(waiting, timeout)
        if clock.on_virtual_main_thread():
            real_ns = real_time.monotonic_ns() - began_ns
            timed_out = not result and timeout is not None and timeout > 0 and real_ns >= timeout * 1e9
            clock.has_waited(timeout, real_ns, timed_out, timed_out and is_called_by_user(sys._getframe(1)))
        return result

    return wait


# ---- timing statements ----------------------------------------------------------------------------------------------
class _Reading(NamedTuple):
    host_ns: int
    real_ns: int
    activity: int


def _timing(clock: VirtualClock, real: Callable[..., float]) -> Callable[..., float]:
    """timeit, and torch.utils.benchmark on top of it. They repeat a statement until it has taken long enough. A
    statement that costs nothing in the host model would be repeated for ever; so the time that it takes on this machine
    is returned, and passes as host time.
    """

    @functools.wraps(real)
    def timed(timer: timeit.Timer, number: int = 1_000_000) -> float:
        if not clock.on_virtual_main_thread():
            return real(timer, number)
        read: Callable[[], float] = timer.timer  # type: ignore[attr-defined]
        readings: list[_Reading] = []

        def read_both() -> float:
            """Called before the repetitions and after them. The inner readings are those of both clocks, because
            `read` may itself take host time.
            """
            first = None if readings else read()
            readings.append(_Reading(clock.host_ns(), real_time.monotonic_ns(), clock.activity()))
            return read() if first is None else first

        timer.timer = read_both  # type: ignore[attr-defined]
        try:
            taken = real(timer, number)
        finally:
            timer.timer = read  # type: ignore[attr-defined]
        before, after = readings
        real_ns, host_ns = after.real_ns - before.real_ns, after.host_ns - before.host_ns
        if after.activity > before.activity or host_ns >= real_ns:
            return taken
        # No call and no operator: Python functions at most, of which the repetitions of a statement may have none.
        clock.pass_ns(real_ns - host_ns)
        return real_ns / 1e9

    return timed
