"""Measures the time that a batch takes, in the worker process that loads it.

A worker sends each batch with its number. The number carries the time: it travels through queues and PyTorch's pinning
thread as it is.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from typing import Any

from ..clock.virtual_clock import VirtualClock
from ..interpreter.hook_library import Hook

PLACE_OF_QUEUES = (2, 3)
"""The positions of two queues among the worker loop's arguments: the one from the main process, and the one back."""


class TimedNumber(int):
    """The number of a batch, and what loading it took."""

    cpu_ns: int
    latency_ns: int

    def __reduce__(self) -> tuple[Any, ...]:
        return timed, (int(self), self.cpu_ns, self.latency_ns)


def timed(number: int, cpu_ns: int, latency_ns: int) -> TimedNumber:
    found = TimedNumber(number)
    found.cpu_ns, found.latency_ns = cpu_ns, latency_ns
    return found


def measuring(worker_loop: Callable[..., None], hook: Hook, clock: VirtualClock) -> Callable[..., None]:
    """Wraps torch's loop of a worker process."""

    @functools.wraps(worker_loop)
    def loop(*arguments: Any) -> None:
        hook.frames_on(False)  # counting would be a part of what is measured
        given = list(arguments)
        meter = _Meter(clock)
        for place in PLACE_OF_QUEUES:
            given[place] = _Queue(given[place], meter)
        worker_loop(*given)

    return loop


class _Meter:
    """CPU time of the process, so that pickling in the queue's own thread is included, and its sleeps."""

    def __init__(self, clock: VirtualClock) -> None:
        self._clock = clock
        self._cpu_ns, self._slept_ns = -1, 0

    def begin(self) -> None:
        """Begins to count: the worker has been given its first batch, and what it did before is its start."""
        if self._cpu_ns < 0:
            self._cpu_ns, self._slept_ns = time.process_time_ns(), self._clock.slept_ns

    def take(self) -> tuple[int, int]:
        before, slept_ns = self._cpu_ns, self._slept_ns
        self._cpu_ns, self._slept_ns = time.process_time_ns(), self._clock.slept_ns
        return self._cpu_ns - before, self._slept_ns - slept_ns


class _Queue:
    """One of a worker's queues, observed."""

    def __init__(self, queue: Any, meter: _Meter) -> None:
        self._queue, self._meter = queue, meter

    def get(self, *arguments: Any, **options: Any) -> Any:
        found = self._queue.get(*arguments, **options)
        self._meter.begin()
        return found

    def put(self, sent: Any, *arguments: Any, **options: Any) -> None:
        number, data = sent
        if type(number) is int:
            sent = (timed(number, *self._meter.take()), data)
        self._queue.put(sent, *arguments, **options)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._queue, name)
