"""Data loaders: what depends on the workers' real speed is no host time of the rank, and what loading takes.

How often a loader's iterator looks for a batch, in which order batches arrive, and how it waits for its workers' end
differ from run to run. What it does with a batch afterwards is counted as ever. With ``in_order=False`` a program gets
the batches as they arrive on a cluster; here it gets them in order, too.

Whether the rank sleeps while it waits depends on the workers' speed as well. A rank that sleeps ends its open segments,
and where a segment ends decides when its kernels are booked, so all end before each look for a batch.

Where loading takes virtual time (`--loaders`), the rank goes on when the batch is loaded there. Loading in the main
process takes what is missing of its time after Python functions and operators, which are counted as ever.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

from ..clock.virtual_clock import VirtualClock
from ..contract.policies.loading_policy import LoadingPolicy, SlowLoader
from ..interpreter.hook_library import Hook
from ..private.changes import Names, changes
from .in_worker import TimedNumber, measuring
from .loads import Loads
from .workers import Cost, Workers


class DataLoading:
    """The data loaders of a process."""

    def __init__(self, hook: Hook, clock: VirtualClock, policy: LoadingPolicy, scale: float) -> None:
        """`scale`: CPU time of the described host for what takes one second here."""
        self._hook, self._clock, self._policy, self._scale = hook, clock, policy, scale
        self._workers: Workers | None = None
        self._late: tuple[SlowLoader, ...] = ()
        self._aside = _Aside(hook)
        self.loads = Loads(hook)

    def install(self) -> None:
        """Changes torch's data loaders, and torchdata's. Called once, in the forker, after torch is imported."""
        changes.install("data loading", self._change)
        changes.when_imported("torchdata's loader", lambda names: names.change("_next_data", self._loading_here))

    def _change(self, names: Names) -> None:
        for method, make in (
            ("__init__", _in_order),
            ("_get_data", self._learning),
            ("_shutdown_workers", self._ending),
            ("_try_put_index", self._asking),
            ("_reset", self._beginning),
            ("_next_data", self._waiting),
        ):
            names.change(f"_MultiProcessingDataLoaderIter.{method}", make)
        names.change("_SingleProcessDataLoaderIter._next_data", self._loading_here)
        names.change("_worker_loop", lambda loop: measuring(loop, self._hook, self._clock))

    def start(self, cpus: Fraction, slow: Sequence[SlowLoader] = ()) -> None:
        """Gives this many CPUs of the rank's server to its workers. Called in the rank. `slow`: faults of its
        loaders.
        """
        self._late = tuple(slow)
        if self._policy.takes_time or self._late:
            self._workers = Workers(cpus)

    def _late_ns(self, number: int) -> int:
        """Returns how much later than others the batch of this number of an iterator comes, in ns; the first batch is
        0.
        """
        return sum(one.more_ns for one in self._late if (number + 1) % one.every == 0)

    @property
    def _measured(self) -> bool:
        """Tells whether a batch costs what it takes on this machine."""
        return self._policy.takes_time and not self._policy.stated_ns

    def _timed(self) -> Workers | None:
        """Returns the workers; None if loading takes no virtual time. Only the main thread waits in virtual time."""
        return self._workers if self._clock.on_virtual_main_thread() else None

    def _cost(self, cpu_ns: int, latency_ns: int) -> Cost:
        if self._policy.stated_ns or not self._policy.takes_time:
            return Cost(self._policy.stated_ns)
        return Cost(round(cpu_ns * self._scale), latency_ns)

    # ---- with worker processes -------------------------------------------------------------------------------------

    def _beginning(self, method: Any) -> Any:
        @functools.wraps(method)
        def reset(iterator: Any, *arguments: Any, **options: Any) -> None:
            self._forget(iterator)
            iterator._phantora_epoch = object()
            method(iterator, *arguments, **options)
            self._ask(iterator, self._hook.clock_ns() if self._timed() else 0)

        return reset

    def _asking(self, method: Any) -> Any:
        """Notes the batch that a worker is asked for; `_ask` says when that was."""

        @functools.wraps(method)
        def put(iterator: Any) -> None:
            number = iterator._send_idx
            method(iterator)
            if iterator._send_idx > number:
                asked = vars(iterator).setdefault("_phantora_asked", [])
                asked.append((iterator._task_info[number][0], number))

        return put

    def _ask(self, iterator: Any, at_ns: int) -> None:
        workers, asked = self._timed(), vars(iterator).pop("_phantora_asked", [])
        if workers is None:
            return
        with self._aside:
            for worker, number in asked:
                workers.ask(iterator._phantora_epoch, worker, number, at_ns, self._late_ns(number))
                if not self._measured:
                    workers.learn(iterator._phantora_epoch, number, self._cost(0, 0))

    def _learning(self, method: Any) -> Any:
        @functools.wraps(method)
        def get(iterator: Any) -> Any:
            with self._aside:
                found = method(iterator)
                number = found[0]
                if isinstance(number, TimedNumber):
                    self.loads.of(iterator).note(number.cpu_ns, number.latency_ns)
                    workers = self._timed()
                    if workers is not None and self._measured:
                        cost = self._cost(number.cpu_ns, number.latency_ns)
                        workers.learn(iterator._phantora_epoch, int(number), cost)
            return found

        return get

    def _waiting(self, method: Any) -> Any:
        @functools.wraps(method)
        def take(iterator: Any) -> Any:
            self._hook.close_segments()
            workers = self._timed()
            now_ns = self._hook.clock_ns() if workers is not None else 0
            try:
                data = method(iterator)
                with self._aside:
                    load, ready_ns = self.loads.of(iterator), 0
                    load.batches += 1
                    if workers is not None:
                        ready_ns = workers.ready_ns(iterator._phantora_epoch, iterator._rcvd_idx - 1)
                if workers is not None and ready_ns > now_ns:
                    load.waits += 1
                    load.waited_ns += ready_ns - now_ns
                    self._clock.pass_ns(ready_ns - now_ns)
                    now_ns = ready_ns
                return data
            finally:
                self._ask(iterator, now_ns)

        return take

    def _ending(self, method: Any) -> Any:
        @functools.wraps(method)
        def shut_down(iterator: Any) -> None:
            self._hook.close_segments()
            with self._aside:
                method(iterator)
                self._forget(iterator)

        return shut_down

    def _forget(self, iterator: Any) -> None:
        workers = self._timed()
        if workers is not None and hasattr(iterator, "_phantora_epoch"):
            with self._aside:
                workers.forget(iterator._phantora_epoch)

    # ---- in the main process ---------------------------------------------------------------------------------------

    def _loading_here(self, method: Any) -> Any:
        @functools.wraps(method)
        def load(iterator: Any) -> Any:
            timed, clock = self._timed() is not None, self._clock
            host_ns, slept_ns = clock.host_ns() if timed else 0, clock.slept_ns
            cpu_ns = time.thread_time_ns()
            data = method(iterator)
            cpu_ns = time.thread_time_ns() - cpu_ns
            slept_ns = clock.slept_ns - slept_ns
            counted_ns = clock.host_ns() - host_ns - slept_ns if timed else 0
            with self._aside:
                found = self.loads.of(iterator)
                found.batches += 1
                found.note(cpu_ns, slept_ns)
                missing_ns = max(self._cost(cpu_ns, 0).cpu_ns - counted_ns, 0) + self._late_ns(found.batches - 1)
            if timed and missing_ns > 0:
                found.waits += 1
                found.waited_ns += missing_ns
                clock.pass_ns(missing_ns)
            return data

        return load


class _Aside:
    """A context in which nothing takes virtual time: the work depends on the workers' real speed, or is the emulation's
    own.
    """

    def __init__(self, hook: Hook) -> None:
        self._hook = hook

    def __enter__(self) -> None:
        self._hook.uncounted(1)

    def __exit__(self, *_: object) -> None:
        self._hook.uncounted(-1)


def _in_order(begin: Any) -> Any:
    """Makes an iterator give out batches in the order of their indices."""

    @functools.wraps(begin)
    def begin_in_order(self: Any, loader: Any) -> None:
        begin(self, loader)
        self._in_order = True

    return begin_in_order
