"""The clock of one process: real in the forker and the servers, virtual in a rank.

The state follows the life of the process:

    REAL       forker and servers: callers get the machine's time
    VIRTUAL    a rank: its main thread and torch's autograd threads ask the coordinator
    CONTINUED  a rank's child process, and a rank that has disconnected: real pace, from the last known instant on

Other threads of the program that have given the GPU no work yet get what is known, too: how often they ask depends on
the machine.

Callers whose timeouts guard real waits (threading, sockets, rendezvous ...) get real time in every state: with virtual
time they would wait for ever, or not at all. `callers` lists their modules, so it does not matter how or when they
imported `time`. When such a wait on the main thread, made by the script itself (`Event.wait(60)`, `asyncio.sleep(60)`),
ends by its timeout, virtual time passes as well: otherwise a script that waits so for a deadline would wait for ever.
"""

from __future__ import annotations

import enum
import os
import threading
import types
from collections.abc import Callable
from typing import Protocol

from ..interpreter import real_time
from ..private.access import is_daemon_thread
from .callers import TimeSource, time_source_of
from .wait_clock import WaitClock

_IDLE_READ_STEP_NS = 50
_IDLE_READ_LIMIT_NS = 1_000_000
_FREE_IDLE_READS = 16
_REAL_SOURCES = (TimeSource.REAL, TimeSource.WAITS)


class HookClock(Protocol):
    """The functions of the hook library that the clock uses. All times are nanoseconds."""

    @property
    def clock_ns(self) -> Callable[[], int]:
        """Returns the virtual time of the rank's host, as soon as no other rank can change it. Asks the coordinator."""

    @property
    def clock_read_ns(self) -> Callable[[], int]:
        """Returns the same without asking if it is certain: between two calls that could have stopped the host."""

    @property
    def host_clock_ns(self) -> Callable[[], int]:
        """Returns the host time that this rank has used so far. Asks nobody."""

    @property
    def activity(self) -> Callable[[], int]:
        """A number that grows with every call and every operator of this rank. Asks nobody."""

    @property
    def is_uncounted(self) -> Callable[[], int]:
        """Tells whether the calling thread compiles: then time stands still for it. Asks nobody."""

    @property
    def looks_on(self) -> Callable[[], int]:
        """Tells whether the calling thread has given the GPU no work: how often it asks must move no clock. Asks
        nobody.
        """

    @property
    def advance_ns(self) -> Callable[[int], None]:
        """Lets host time pass."""


class ClockState(enum.Enum):
    """The states of a clock, which the module's description lists."""

    REAL = enum.auto()
    VIRTUAL = enum.auto()
    CONTINUED = enum.auto()


class VirtualClock:
    """Tells the time and lets it pass. Instants are nanoseconds of virtual time since the run's start."""

    def __init__(self, hook: HookClock) -> None:
        self._hook = hook
        self._state = ClockState.REAL
        self._epoch_ns = 0
        self._last_known_ns = 0
        self._continued_ns = 0  # CONTINUED: what to add to real monotonic time
        self._main_thread = 0
        self._sources: dict[str | None, TimeSource] = {}
        self._host_ns_after_read = -1
        self._activity_at_read = -1
        self._passed = 0  # how often time was passed here, by a sleep for example
        self._idle_reads = 0
        self.slept_ns = 0
        """Time, in ns, that this process has slept by its own wish: in virtual time, or in real time where it has no
        virtual time.
        """
        self._waits: WaitClock | None = None
        self._daemon = threading.local()  # slept_until_ns: the end of this daemon thread's last sleep

    # ---- life of the process ----------------------------------------------------------------------------------------
    def follow_forks(self) -> None:
        """Makes child processes of a rank stop the clock when they are forked. Called once, in the forker."""
        os.register_at_fork(after_in_child=self.stop)

    def start(self, epoch_s: int) -> None:
        """Makes time virtual from now on. Called in the rank, on its main thread. `epoch_s`: `time.time()` at virtual
        time 0.
        """
        self._epoch_ns = epoch_s * 10**9
        self._main_thread = threading.get_ident()
        self._waits = WaitClock(self._hook.host_clock_ns, real_time.monotonic_ns())
        self._state = ClockState.VIRTUAL

    def stop(self) -> None:
        """Lets time continue at real pace, as nobody answers questions any more."""
        if self._state is ClockState.VIRTUAL:
            self._continued_ns = self._last_known_ns - real_time.monotonic_ns()
            self._state = ClockState.CONTINUED

    # ---- reading ----------------------------------------------------------------------------------------------------
    @property
    def epoch_ns(self) -> int:
        """`time.time_ns()` at virtual time 0."""
        return self._epoch_ns

    def keep_up(self) -> None:
        """Returns when virtual time has come to where this rank's host is."""
        self._hook.clock_ns()

    def read_ns(self, caller: types.FrameType) -> int | None:
        """Returns the time, in ns, that the code of this frame gets; None if it gets real time."""
        if self._state is ClockState.REAL:
            return None
        source = self._source_of(caller)
        if source in _REAL_SOURCES:
            return None
        if self._state is ClockState.CONTINUED:
            return real_time.monotonic_ns() + self._continued_ns
        if source is TimeSource.LAST_KNOWN or self._hook.is_uncounted():
            return self._last_known_ns
        thread = threading.get_ident()
        if thread != self._main_thread and is_daemon_thread(thread):
            return self._daemon_thread_ns()
        if thread != self._main_thread and self._hook.looks_on():
            return max(self._daemon_thread_ns(), self._hook.clock_ns())
        if source is TimeSource.PROGRESS and self._hook.activity() + self._passed == self._activity_at_read:
            return self._last_known_ns
        return self._ask()

    def read_for_waits_ns(self, caller: types.FrameType) -> int | None:
        """Returns the monotonic time, in ns, that code gets which computes what is left of its timeout; None for other
        code, and where waits pass no virtual time.
        """
        if self._waits is None or not self.on_virtual_main_thread() or self._source_of(caller) is not TimeSource.WAITS:
            return None
        return self._waits.read_ns()

    def _source_of(self, caller: types.FrameType) -> TimeSource:
        module = caller.f_globals.get("__name__")
        source = self._sources.get(module)
        if source is None:
            source = self._sources[module] = time_source_of(module)
        return source

    def _daemon_thread_ns(self) -> int:
        """Returns the time of a daemon thread, which asks nobody: the last known time, or the end of the thread's own
        last sleep.
        """
        return max(self._last_known_ns, getattr(self._daemon, "slept_until_ns", 0))

    def _ask(self) -> int:
        """Returns the virtual time of this rank's host, as soon as no other rank can change it any more."""
        activity = self._hook.activity() + self._passed
        if activity == self._activity_at_read:
            # The rank has called nothing since its last read: maybe a loop that waits for time to pass. Let it pass,
            # faster with every read; its own Python functions take time as well, so the first reads are left alone.
            self._idle_reads += 1
            stood_still = self._hook.host_clock_ns() == self._host_ns_after_read
            counted = self._idle_reads if stood_still else self._idle_reads - _FREE_IDLE_READS
            if counted > 0:
                self._hook.advance_ns(min(_IDLE_READ_STEP_NS * counted, _IDLE_READ_LIMIT_NS))
        else:
            self._idle_reads = 0
        now_ns = self._hook.clock_read_ns()
        self._activity_at_read = activity
        self._host_ns_after_read = self._hook.host_clock_ns()
        self._last_known_ns = max(self._last_known_ns, now_ns)
        return self._last_known_ns

    # ---- letting time pass ------------------------------------------------------------------------------------------
    def on_virtual_main_thread(self) -> bool:
        """Tells whether time is virtual and this is the main thread, whose waits let virtual time pass."""
        return self._state is ClockState.VIRTUAL and threading.get_ident() == self._main_thread

    def host_ns(self) -> int:
        """Returns the host time that this rank has used so far."""
        return self._hook.host_clock_ns()

    def activity(self) -> int:
        """Grows with every call and every operator of this rank."""
        return self._hook.activity()

    def pass_ns(self, for_ns: int) -> None:
        """Lets host time pass, without asking for the time."""
        self._passed += 1
        self._hook.advance_ns(for_ns)

    def has_waited(self, timeout_s: float | None, real_ns: int, timed_out: bool, of_script: bool) -> None:
        """Notes a wait of the main thread that is over: it had this timeout, and really took `real_ns`. If its timeout
        ended it and the script itself made it, virtual time passes.
        """
        assert self._waits is not None, "time is virtual"
        timeout_ns = None if timeout_s is None else max(0, round(timeout_s * 1e9))
        self._waits.has_waited(timeout_ns, real_ns, timed_out)
        if timed_out and timeout_ns and of_script:
            self.pass_ns(timeout_ns)
            self._waits.skip_host_time()

    def sleep(self, seconds: float, caller: types.FrameType) -> None:
        """Sleeps as `time.sleep` does for the code of this frame: in virtual time on the main thread, really elsewhere
        and for callers that get real time. Raises what `time.sleep` raises.
        """
        if self._state is not ClockState.VIRTUAL or self._source_of(caller) in _REAL_SOURCES:
            real_time.sleep(seconds)
            self.slept_ns += int(seconds * 1e9) if self._source_of(caller) is TimeSource.VIRTUAL else 0
        elif threading.get_ident() != self._main_thread:
            real_time.sleep(seconds)
            self._daemon.slept_until_ns = self._daemon_thread_ns() + int(seconds * 1e9)
        elif seconds > 0:
            # It ends when all ranks have come that far, so whatever they did before that instant can be seen.
            self._hook.advance_ns(round(seconds * 1e9))
            self.slept_ns += round(seconds * 1e9)
            self._ask()
        else:
            real_time.sleep(seconds)
