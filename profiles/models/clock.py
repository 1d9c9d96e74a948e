"""The clock of a GPU under its power limit.

A GPU lowers its clock until what its kernels draw is its power limit. Sums over the last kernels, older ones counting
less, hold what these would take at the full clock: their time, their energy, and both weighted by how much the clock
stretches them. emu/hook/costs/power.c, which follows a rank's launches, says how the clock follows from them;
power_clock.def has the constants of both.
"""

from __future__ import annotations

from math import sqrt
from pathlib import Path

from formats.c_lists import read_list
from profiles.descriptions.gpu import Gpu

_DEFINITION = Path(__file__).resolve().parents[2] / "emu" / "contract" / "definitions" / "power_clock.def"
"""The constants of the clock. They are read from a file, since profiles imports no part of emu. Both packages are
installed side by side.
"""
_CONSTANTS = {name: float(value) for _, (name, value) in read_list(_DEFINITION, "CONSTANT")}
SOLVE_NS = int(_CONSTANTS["SOLVE_NS"])
"""The ns of work after which a rank computes its clock anew."""
LONGEST_STRETCH = _CONSTANTS["LONGEST_STRETCH"]


class Clock:
    """The clock of one GPU. The arithmetic is that of C, operation by operation, so that results are equal to the
    bit.
    """

    __slots__ = ("_clocked", "_clocked_energy", "_energy", "_idle", "_left", "_since", "_window")

    def __init__(self, window_ns: int, idle: float) -> None:
        """`idle`: the power of the GPU when it waits, in units of the limit. At first it has waited for long."""
        self._window = float(window_ns)
        self._idle = idle
        self._clocked = self._clocked_energy = 0.0
        self._energy = idle * self._window
        self._left, self._since = 1.0, (self._clocked, self._energy, self._clocked_energy)

    @classmethod
    def of(cls, gpu: Gpu) -> Clock:
        """The clock of this GPU. Raises ValueError for a GPU whose power is not described."""
        if gpu.power is None:
            raise ValueError(f"{gpu.name}: no [power]")
        return cls(gpu.power.window_ns, gpu.power.hunger * gpu.power.idle_w / gpu.power_limit_w)

    def add(self, ns: float, power: float, clocked: float) -> None:
        """Adds work of that duration at the full clock. `power`: its power in units of the limit; `clocked`: how much
        of its time depends on the clock, relative to a large matrix product.
        """
        self.add_sums(ns, ns * power, ns * clocked, ns * power * clocked)

    def add_sums(self, ns: float, energy: float, clocked: float, clocked_energy: float) -> None:
        """Adds several pieces of work: the sums of their time, and of their time multiplied by power, by clocked, by
        both.
        """
        left = self._window / (self._window + ns)  # the window's time stays the same
        self._clocked = (self._clocked + clocked) * left
        self._energy = (self._energy + energy) * left
        self._clocked_energy = (self._clocked_energy + clocked_energy) * left
        self._left *= left

    def repeat(self, times: float) -> None:
        """Brings the sums to the state as if everything added since the beginning had been added `times` times."""
        now = self._clocked, self._energy, self._clocked_energy
        left, power = self._left, self._left**times
        if left < 1:
            more = (1 - power) / (1 - left)
            self._clocked, self._energy, self._clocked_energy = (
                power * begun + more * (reached - left * begun) for begun, reached in zip(self._since, now, strict=True)
            )

    def idle(self, ns: float) -> None:
        """Adds time in which the GPU waits."""
        self.add_sums(ns, ns * self._idle, 0.0, 0.0)

    @property
    def stretch(self) -> float:
        """The time of a large matrix product now, over that at the full clock."""
        if self._energy <= self._window or not self._clocked:
            return 1.0
        half = (self._window - self._clocked - self._energy + self._clocked_energy) / 2
        found = (sqrt(half * half + self._clocked * self._clocked_energy) - half) / self._clocked
        return min(max(found, 1.0), LONGEST_STRETCH)
