"""Follows the clock of a GPU under its power limit, launch by launch, as the hook library does
(emu/hook/costs/power.c).
"""

from __future__ import annotations

from profiles import Gpu
from profiles.models.clock import SOLVE_NS, Clock

THOUSANDTHS = 0.001


class PowerClock:
    """The clock of one GPU."""

    __slots__ = ("_clock", "_free_ns", "_last_stream", "_stretch", "_unsolved_ns")

    def __init__(self, gpu: Gpu) -> None:
        power = gpu.power
        self._clock = Clock(power.window_ns, gpu.idle_thousandths * THOUSANDTHS) if power is not None else None
        self._stretch = 0.0
        """The factor on times at the present clock; 0: nothing has run."""
        self._free_ns = self._unsolved_ns = self._last_stream = 0

    def launch(self, stream: int, solo_ns: int, power: int, clocked: int, now_ns: int, gap_ns: int) -> float:
        """The time of this launch over that at the full clock. `power`, `clocked`: in thousandths."""
        clock = self._clock
        if clock is None:
            return 1.0
        if not self._stretch:
            self._stretch = 1.0
            self._free_ns = now_ns
        if now_ns > self._free_ns:
            gap_ns += now_ns - self._free_ns
            self._free_ns = now_ns
        share = clocked * THOUSANDTHS
        clock.idle(float(gap_ns))
        clock.add(float(solo_ns), power * THOUSANDTHS, share)
        self._unsolved_ns += gap_ns + solo_ns
        if self._unsolved_ns >= SOLVE_NS:
            self._stretch = clock.stretch
            self._unsolved_ns = 0
        longer = 1 + share * (self._stretch - 1)
        self._free_ns += int(float(solo_ns) * longer)
        self._last_stream = stream
        return longer

    def host_waited(self, stream: int, now_ns: int) -> None:
        """Records that the host has waited for the stream; 0: for all of the GPU."""
        if (not stream or stream == self._last_stream) and self._free_ns > now_ns:
            self._free_ns = now_ns
