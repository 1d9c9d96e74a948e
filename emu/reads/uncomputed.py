"""A read of a value that nobody computed: what the program gets, and what is noted."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from ..contract.stated_values import Number, StatedValue
from ..interpreter.hook_library import Hook
from .carriers import Carriers
from .checkpoints import Checkpoints
from .decisions import Decisions
from .loops import WaitingLoops
from .stated import StatedValues

if TYPE_CHECKING:
    from torch import Tensor


class UncomputedReads:
    """The reads of one process. `emu.control` calls it for every read of a number or of a tensor's values.

    Nothing that the methods here call is work of the program's: see emu.interpreter.frame_counter.
    """

    def __init__(
        self,
        hook: Hook,
        values: tuple[StatedValue, ...],
        most_turns: int,
        checkpoints: Checkpoints,
        carriers: Carriers,
    ) -> None:
        """Called in the forker, in the folder where the program is started. `most_turns`: turns of a loop that
        waits."""
        folder = os.getcwd()
        self._hook = hook
        self.checkpoints = checkpoints
        self.stated = StatedValues(hook, values, folder)
        self._loops = WaitingLoops(hook, most_turns, folder)
        self.decisions = Decisions(hook, folder, carriers)
        checkpoints.mark_loaded, checkpoints.unknown_elements = self.decisions.loaded, self.decisions.unknown_elements

    def start(self, rank: int) -> None:
        """Begins to count and to send records. Called in the rank, before its script runs."""
        self.stated.start(rank)
        self.checkpoints.start(self._hook)

    def report(self) -> None:
        """Sends all counts, at the rank's end."""
        self.stated.report()
        self.checkpoints.report()
        self.decisions.report()

    def stated_value(self, tensor: Tensor) -> Number | None:
        """Returns the number that `--value` says that the program reads of the tensor now, whose values nobody
        computed: one that the tensor's dtype can have. None if it says nothing.
        """
        number = self.stated.find() if self.stated else None
        return self.stated.read(number, tensor) if number is not None else None

    def note(self, tensor: Tensor, value: Any, *, stated: bool, target: Tensor | None = None) -> None:
        """Notes that the program gets this value of a tensor that nobody computed; None: several values. `target`: the
        tensor of the host's that they are copied to.
        """
        if self.checkpoints.writing:
            return  # for a file: the program does not look at it
        self._loops.note_read(tensor, value, stated=stated)
        if not stated and (tensor.is_floating_point() or tensor.is_complex()):
            self.decisions.note_read(tensor, value, target)

    def how_to_state(self, line: str) -> str:
        """Returns the end of a message about a read at this line."""
        return self.decisions.how_to_state(line)

    def computed(self) -> None:
        """Notes that the program reads values that were computed. To be called if a value is stated at all."""
        number = self.stated.find()
        if number is not None:
            self.stated.note_computed(number)
