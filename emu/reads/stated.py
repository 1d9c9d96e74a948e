"""Reads for which `--value` states what the program gets."""

from __future__ import annotations

import importlib
import os
from types import CodeType
from typing import TYPE_CHECKING, Any

from ..contract.stated_values import Number, StatedValue, ValueProblem, check_number, fits
from ..interpreter.hook_library import Hook
from .frames import MOST_PLACES, path_of, position_of, program_frames

if TYPE_CHECKING:
    from torch import Tensor

_NONE = -1


class StatedValueError(RuntimeError):
    """Raised at the line of the read if a stated value cannot be evaluated, or not be read as the tensor's dtype."""


class StatedValues:
    """The stated values of one rank. A read has the value that is stated for its line, or for the line of an outer
    call: the innermost line that has one counts.
    """

    def __init__(self, hook: Hook, values: tuple[StatedValue, ...], folder: str) -> None:
        """`folder`: where the program was started."""
        self._hook = hook
        self._values = values
        self._folder = folder
        self._rank = 0
        self._steps = 0
        self._reads = [0] * len(values)
        self._computed = [0] * len(values)
        self._lines: dict[tuple[CodeType, int], int] = {}
        """The number of the value that is stated for a line, or _NONE; by code and instruction."""

    def __bool__(self) -> bool:
        """Tells whether any value is stated."""
        return bool(self._values)

    def start(self, rank: int) -> None:
        """Begins to count steps. Called in the rank, before its script runs."""
        self._rank = rank
        if self._values:
            self._hook.at_step(self._count_step)

    def _count_step(self) -> None:
        self._steps += 1

    def find(self) -> int | None:
        """Returns the number of the value that is stated for the present line; None if there is none."""
        for frame in program_frames():
            at = frame.f_code, frame.f_lasti
            number = self._lines.get(at)
            if number is None:
                if len(self._lines) > MOST_PLACES:
                    self._lines.clear()
                number = self._lines[at] = self._find(*at)
            if number != _NONE:
                return number
        return None

    def _find(self, code: CodeType, instruction: int) -> int:
        position = position_of(code, instruction)
        path = path_of(code.co_filename, self._folder)
        for number, value in enumerate(self._values):
            here = position.line <= value.line <= position.last_line
            if here and any(fits(value.file, p) for p in {path, os.path.realpath(path)}):
                return number
        return _NONE

    def read(self, number: int, tensor: Tensor) -> Number:
        """Returns what the program reads now, as the tensor's dtype has it. Raises StatedValueError."""
        n, value = self._reads[number], self._values[number]
        self._reads[number] += 1
        if self._reads[number] & n == 0:  # 1, 2, 4, 8 ... reads
            self._send(number)
        try:
            return _as_dtype(self._call(value, n) if value.is_function else self._evaluate(value, n), tensor)
        except ValueProblem as problem:
            raise StatedValueError(f"--value {value.resolved}: {problem}") from None

    def _evaluate(self, value: StatedValue, n: int) -> Number:
        return value.evaluate(n, self._steps, self._rank)

    def _call(self, value: StatedValue, n: int) -> Number:
        """Calls the function. Its own work takes no virtual time. Exceptions in it are the user's."""
        module, _, name = value.expression.partition(":")
        self._hook.uncounted(1)
        try:
            function = getattr(importlib.import_module(module), name)
            found = function(n=n, step=self._steps, rank=self._rank)
        finally:
            self._hook.uncounted(-1)
        if not isinstance(found, (bool, int, float)) and hasattr(found, "__float__"):
            found = float(found)
        return check_number(found)

    def note_computed(self, number: int) -> None:
        """Counts a value that was computed: it is left as it is."""
        self._computed[number] += 1
        if self._computed[number] & (self._computed[number] - 1) == 0:
            self._send(number)

    def report(self) -> None:
        """Sends all totals, at the rank's end."""
        for number in range(len(self._values)):
            self._send(number)

    def _send(self, number: int) -> None:
        self._hook.stated_value(number, self._reads[number], self._computed[number])


def _as_dtype(value: Number, tensor: Tensor) -> Number:
    import torch

    dtype = tensor.dtype
    if dtype is torch.bool:
        return bool(value)
    if dtype.is_floating_point or dtype.is_complex:
        return float(value)
    try:
        whole = round(value)
    except (ValueError, OverflowError):
        raise ValueProblem(f"{value} is not a whole number, which {str(dtype).removeprefix('torch.')} needs") from None
    limits: Any = torch.iinfo(dtype)
    if not limits.min <= whole <= limits.max:
        raise ValueProblem(f"{whole} is out of the range of {str(dtype).removeprefix('torch.')}")
    return whole
