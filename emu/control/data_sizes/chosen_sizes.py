"""Asks the policy of `--data-shapes` for a size, and tells the coordinator for the report where it was asked."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from typing import Any, NamedTuple

from ...contract.policies.shape_policy import ShapePolicy
from ...interpreter.code_owner import Owner, owner_of
from ...interpreter.hook_library import Hook

_MOST_FRAMES = 24


class Caller(NamedTuple):
    """The caller of an operation whose result has such a size."""

    operation: str
    inner: str
    """`file:line` of the innermost code that is not PyTorch's; "" if there is none."""
    line: str
    """`file:line` of the script; "" if that is unknown."""


@dataclass(slots=True)
class _Total:
    """The sums over all calls of one caller since the rank's start."""

    calls: int = 0
    most: int = 0
    """Sum of the largest sizes that there could be."""
    chosen: int = 0
    """Sum of the sizes that the policy chose."""
    sent: int = 0
    """The number of calls that the coordinator knows of."""


class ChosenSizes:
    """The sizes that the policy chooses in one process."""

    policy: ShapePolicy
    """Set when the run's job is known, before the first choice."""

    def __init__(self, hook: Hook) -> None:
        import torch

        self._hook = hook
        self._torch = os.path.dirname(torch.__file__) + os.sep
        self._totals: dict[Caller, _Total] = {}

    def choose(self, operation: str, most: int, *, of_classes: bool = False) -> int:
        """Returns how many of `most` elements the result has. To be called once for each call of the operation.
        `of_classes`: integers are compared with a number.
        """
        lines = self._lines()
        caller = Caller(operation, short(lines[0]) if lines else "", self._hook.line())
        total = self._totals.setdefault(caller, _Total())
        size = self.policy.size(lines, operation, total.calls, most, of_classes=of_classes)
        total.calls += 1
        total.most += most
        total.chosen += size
        if total.calls >= 2 * total.sent:
            self._send(caller, total)
        return size

    def report(self) -> None:
        """Sends all totals, at the rank's end."""
        for caller, total in self._totals.items():
            if total.calls != total.sent:
                self._send(caller, total)

    def _send(self, caller: Caller, total: _Total) -> None:
        total.sent = total.calls
        self._hook.data_size(total.calls, total.most, total.chosen, "\n".join(caller))

    def _lines(self) -> tuple[str, ...]:
        """Returns the lines that the thread runs, the innermost first, without those of PyTorch and of the
        emulation.
        """
        found = []
        frame: Any = sys._getframe(2)
        for _ in range(_MOST_FRAMES):
            if frame is None:
                break
            file = frame.f_code.co_filename
            if not file.startswith(self._torch) and owner_of(file) is not Owner.EMULATION:
                found.append(f"{file}:{frame.f_lineno}")
            frame = frame.f_back
        return tuple(found)


def short(line: str) -> str:
    """Returns `file:line` without the folder of installed packages."""
    for folder in ("/site-packages/", "/dist-packages/"):
        line = line.rpartition(folder)[2]
    return line
