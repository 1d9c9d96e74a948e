"""The clock of waits that compute their own end: event loops of `asyncio`, and the queues of `queue`.

They read the clock, add a timeout, read it again, and wait for what is left. Both readings are of the machine, so what
is left would differ from run to run by some microseconds, and virtual time passes by as much when the wait ends. This
clock stands still between waits, but for the host time of the program, which is the same in every run.

A wait that its timeout has ended takes exactly that long. One that something else has ended takes as long as it really
took: what ends it is as real.
"""

from __future__ import annotations

from collections.abc import Callable

_FREE_READS = 16
_READ_STEP_NS = 50
_READ_LIMIT_NS = 1_000_000
_FREE_LOOKS = 100
_LOOK_NS = 10_000
"""The time that a look without waiting takes after so many in a row: else a loop of looks would come to no timeout."""


class WaitClock:
    """An instant in ns of the machine's monotonic clock, from which this one falls back."""

    def __init__(self, host_clock_ns: Callable[[], int], began_ns: int) -> None:
        self._host_clock_ns = host_clock_ns
        self._host_ns = host_clock_ns()
        self._at_ns = began_ns
        self._reads = 0  # since the last wait or look
        self._looks = 0  # since the last wait

    def read_ns(self) -> int:
        """Returns the instant. After some readings without a wait between them each one takes time, the more the more
        there are, so that a loop that only reads the clock ends.
        """
        self._work()
        self._at_ns += min(_READ_STEP_NS * max(0, self._reads - _FREE_READS), _READ_LIMIT_NS)
        self._reads += 1
        return self._at_ns

    def has_waited(self, timeout_ns: int | None, real_ns: int, timed_out: bool) -> None:
        """Notes a wait that is over: it had this timeout (None: none, 0: it only looked), and really took `real_ns`."""
        self._work()
        self._reads = 0
        if timeout_ns == 0 and not timed_out:
            self._looks += 1
            self._at_ns += _LOOK_NS if self._looks > _FREE_LOOKS else 0
            return
        self._looks = 0
        if timed_out and timeout_ns is not None:
            self._at_ns += max(timeout_ns, 1)  # at least 1: what rounding leaves of a timeout is over
        else:
            self._at_ns += real_ns

    def skip_host_time(self) -> None:
        """Leaves out the host time until now: the wait that has passed it is noted already."""
        self._host_ns = self._host_clock_ns()

    def _work(self) -> None:
        host_ns = self._host_clock_ns()
        self._at_ns += max(0, host_ns - self._host_ns)
        self._host_ns = host_ns
