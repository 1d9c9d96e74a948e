"""The clock of a GPU under its power limit, launch by launch: what the hook library does (emu/hook/costs/power.c)."""

from __future__ import annotations

from math import sqrt

from profiles import Gpu

SOLVE_NS = 250_000
"""The clock is found anew after so much work."""
LONGEST_STRETCH = 1.6
THOUSANDTHS = 0.001


class PowerClock:
    """Of one GPU. The arithmetic is that of C, operation by operation, so that results are equal to the bit."""

    __slots__ = (
        "_clocked", "_clocked_energy", "_energy", "_free_ns", "_idle", "_last_stream", "_stretch", "_unsolved_ns",
        "_window",
    )  # fmt: skip

    def __init__(self, gpu: Gpu) -> None:
        power = gpu.power
        self._window = float(power.window_ns) if power is not None else 0.0
        self._idle = round(1000 * power.idle_w / gpu.power_limit_w) * THOUSANDTHS if power is not None else 0.0
        self._clocked = self._energy = self._clocked_energy = self._stretch = 0.0
        self._free_ns = self._unsolved_ns = self._last_stream = 0

    def launch(self, stream: int, solo_ns: int, power: int, clocked: int, now_ns: int, gap_ns: int) -> float:
        """How many times as long as at the full clock this launch takes. `power`, `clocked`: in thousandths."""
        window = self._window
        if not window:
            return 1.0
        if not self._stretch:
            self._stretch = 1.0
            self._energy = self._idle * window
            self._free_ns = now_ns
        if now_ns > self._free_ns:
            gap_ns += now_ns - self._free_ns
            self._free_ns = now_ns
        share = clocked * THOUSANDTHS
        self._add(float(gap_ns), self._idle, 0.0)
        self._add(float(solo_ns), power * THOUSANDTHS, share)
        self._unsolved_ns += gap_ns + solo_ns
        if self._unsolved_ns >= SOLVE_NS:
            self._stretch = self._solved()
            self._unsolved_ns = 0
        longer = 1 + share * (self._stretch - 1)
        self._free_ns += int(float(solo_ns) * longer)
        self._last_stream = stream
        return longer

    def host_waited(self, stream: int, now_ns: int) -> None:
        """The host has waited for the stream; 0: for all of the GPU."""
        if (not stream or stream == self._last_stream) and self._free_ns > now_ns:
            self._free_ns = now_ns

    def _add(self, ns: float, power: float, clocked: float) -> None:
        left = self._window / (self._window + ns)
        self._clocked = (self._clocked + ns * clocked) * left
        self._energy = (self._energy + ns * power) * left
        self._clocked_energy = (self._clocked_energy + ns * power * clocked) * left

    def _solved(self) -> float:
        time, clocked, energy, saved = self._window, self._clocked, self._energy, self._clocked_energy
        if energy <= time or clocked <= 0:
            return 1.0
        half = (time - clocked - energy + saved) / 2
        stretch = (sqrt(half * half + clocked * saved) - half) / clocked
        return 1.0 if stretch < 1 else min(stretch, LONGEST_STRETCH)
