"""Loops of the program that nothing but a value that is not computed can end: they never end.

What this earns: a script that trains until a loss or an accuracy is reached ends with exit code 77 and a message that
names the loop and the value, instead of running for ever. It earns nothing else: `decisions` tells at the first read
which line decides. No script of tests/e2e/scripts and no public program of tests/frameworks has such a loop. It is kept
because nothing simpler tells such a loop from one that reads a loss in each of a million steps: turns must be counted,
in which there may be many reads, and conditions be looked at in each.

A read that is repeated often is looked at more closely. The program's source tells the loops around it (`loop_exits`),
and which variables follow from it (`dependence`). A loop waits for the read if each of its exits has a condition that
is false and made of values that do not change, and if one of these follows from the read. Its turns are counted as they
happen. Conditions are looked at in each turn: one change, and the loop does not wait.
"""

from __future__ import annotations

import ast
import sys
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from types import CodeType, FrameType
from typing import TYPE_CHECKING, Any

from ..interpreter.hook_library import Hook
from ..interpreter.real_time import monotonic
from .conditions import Evaluation, Unknown
from .dependence import followers, mentions, of_callee, sources
from .expressions import walk
from .frames import MOST_PLACES, Position, Variables, path_of, position_of, program_frames
from .loop_exits import Condition, Loop, loops_at
from .source_text import body_of, tree_of

if TYPE_CHECKING:
    from torch import Tensor

MANY_READS = 64
"""The number of reads at one place that are worth a closer look, and then twice as many, and so on."""
SLOW_READS, SLOW_S = 3, 20.0
"""The number of reads at one place, in so many seconds of real time, that are worth a closer look, too."""
FEW_TURNS = 3
"""The number of turns after which a loop is known to wait."""
TELL_S = 1.0
"""The real time, in seconds, between two records of the same loop."""
ReadAt = tuple[CodeType, Position]
"""The place of an expression that reads. It may have several instructions that read: the interpreter runs others while
it traces.
"""


@dataclass(slots=True)
class _Reading:
    """A place where the program reads."""

    reads: int = 0
    look_at: int = MANY_READS
    """The number of reads until the next look."""
    since_s: float = 0.0


class _Candidate:
    """A loop around a read, and what each of its exits needs."""

    def __init__(self, hook: Hook, frame: FrameType, loop: Loop, names: frozenset[str], line: int) -> None:
        self.frame_id = id(frame)
        self.loop = loop
        self._hook = hook
        self._names = names
        self._line = line
        self.reads: dict[Position, Any] = {}
        """The latest ones in this frame."""
        self._blocking: list[dict[Condition, list[Any]]] | None = None
        """For each exit: conditions that have been false, with the values that they are made of."""

    def possible(self, variables: Variables) -> bool:
        """Tells whether the loop can wait for the read at all."""
        at = Evaluation(variables, {}, self._hook)
        iterable = self.loop.iterable
        if iterable is not None and not at.endless(iterable):
            return False
        if any(at.takes_from_iterator(node) for node in walk(self.loop.node.body)):
            return False
        return all(self.loop.exits) and (
            any(self._follows(condition) for conditions in self.loop.exits for condition in conditions)
        )

    def _follows(self, condition: Condition) -> bool:
        """Tells whether the condition depends on the read."""
        node = condition.expression
        return mentions(node, self._names) or node.lineno <= self._line <= (node.end_lineno or node.lineno)

    def waits(self, variables: Variables) -> bool:
        """Tells whether every exit is closed, by conditions that are what they were in the turns before."""
        found = [self._closed(conditions, variables) for conditions in self.loop.exits]
        if self._blocking is not None:
            found = [
                {condition: leaves for condition, leaves in now.items() if before.get(condition) == leaves}
                for now, before in zip(found, self._blocking, strict=True)
            ]
        self._blocking = found
        return all(found) and any(self._follows(condition) for conditions in found for condition in conditions)

    def _closed(self, conditions: Sequence[Condition], variables: Variables) -> dict[Condition, list[Any]]:
        """Returns the conditions that are false. Their values are also those of which their variables are made in the
        loop: `done` may stay False for long while a counter goes up that sets it in the end.
        """
        closed = {}
        for condition in conditions:
            at = Evaluation(variables, self.reads, self._hook)
            try:
                if bool(at.of(condition.expression)) != condition.holds:
                    for source in sources(self.loop.node.body, condition.expression, self._is_read):
                        at.of(source)
                    closed[condition] = at.leaves
            except Unknown:
                continue
        return closed

    def _is_read(self, expression: ast.expr) -> bool:
        return Position.of(expression) in self.reads


@dataclass(slots=True)
class _Watch:
    """The loop that is watched."""

    place: ReadAt
    candidate: _Candidate
    thread: int
    text: str
    """The text of the LOOP record."""
    turns: int = -1
    told_s: float = 0.0
    told_turns: int = 0


class WaitingLoops:
    """The loops of one process that wait; it watches one loop at a time."""

    def __init__(self, hook: Hook, most_turns: int, folder: str) -> None:
        """`most_turns`: the number of turns of which the coordinator is told at once. `folder`: where the program was
        started.
        """
        self._hook = hook
        self._most_turns = most_turns
        self._folder = folder
        self._places: dict[ReadAt, _Reading] = {}
        self._watch: _Watch | None = None
        self._refused: set[tuple[CodeType, int]] = set()
        """Loops, by their code and line, that were found not to wait since the last look."""

    def note_read(self, tensor: Tensor, value: Any, *, stated: bool) -> None:
        """Notes that the program reads a value that nobody computed. `value`: what it gets, None if that is no
        number."""
        frame = next(program_frames(), None)
        if frame is None:
            return
        at = frame.f_code, position_of(frame.f_code, frame.f_lasti)
        if self._watch is not None:
            self._go_on(self._watch, at, frame, value, stated)
            return
        place = self._places.get(at)
        if place is None:
            if len(self._places) > MOST_PLACES:
                self._places.clear()
            place = self._places[at] = _Reading(since_s=monotonic())
        place.reads += 1
        if place.reads >= place.look_at or (
            place.reads >= SLOW_READS and place.look_at == MANY_READS and monotonic() - place.since_s > SLOW_S
        ):
            self._begin(at, place, tensor, value)

    # ---- finding a loop --------------------------------------------------------------------------------------------

    def _begin(self, at: ReadAt, place: _Reading, tensor: Tensor, value: Any) -> None:
        candidate = self._candidate()
        place.look_at = 2 * max(place.reads, MANY_READS)
        if candidate is None:
            self._refused.clear()
            return
        frame, found, read_at = candidate
        loop = found.loop
        lines = (loop.first, loop.last, loop.head, *loop.inner, frame.f_lineno)
        if sys.gettrace() is not None or not self._hook.watch_loop(frame, lines):
            return  # a debugger traces the program
        dtype = str(tensor.dtype).removeprefix("torch.")
        file = path_of(frame.f_code.co_filename, self._folder)
        text = "\n".join((read_at, file, frame.f_code.co_name, dtype, self._hook.writer(tensor.data_ptr())))
        self._watch = _Watch(at, found, threading.get_ident(), text)
        self._remember(found, at, frame, value)

    def _candidate(self) -> tuple[FrameType, _Candidate, str] | None:
        """Returns the innermost loop around the read that can wait for it, and `file:line`, newline, function of the
        read.
        """
        names: frozenset[str] = frozenset()
        read_at = ""
        for frame in program_frames():
            code, line = frame.f_code, frame.f_lineno
            path = path_of(code.co_filename, self._folder)
            module = tree_of(path).body
            if not module:
                continue
            if not read_at:
                read_at = f"{path}:{line}\n{code.co_name}"
            body = body_of(path, code)
            with Variables(frame) as variables:
                for loop in loops_at(body, line):
                    following = followers(loop.node.body, line, names)
                    found = _Candidate(self._hook, frame, loop, following, line)
                    if (code, loop.first) not in self._refused and found.possible(variables):
                        return frame, found, read_at
            names = of_callee(followers(body, line, names), module) if code.co_name != "<module>" else names
        return None

    # ---- watching it -----------------------------------------------------------------------------------------------

    def _remember(self, candidate: _Candidate, at: ReadAt, frame: FrameType, value: Any) -> None:
        if value is not None and id(frame) == candidate.frame_id:
            candidate.reads[at[1]] = value

    def _go_on(self, watch: _Watch, at: ReadAt, frame: FrameType, value: Any, stated: bool) -> None:
        if threading.get_ident() != watch.thread:
            return
        turns = self._hook.loop_turns()
        if turns < 0:
            self._end(watch)
            return
        self._remember(watch.candidate, at, frame, value)
        if at != watch.place or turns == watch.turns:
            return
        watched = next((one for one in program_frames() if id(one) == watch.candidate.frame_id), None)
        if watched is None:
            self._hook.forget_loop()
            self._end(watch)
            return
        watch.turns = turns
        if turns == 0:
            return  # what the program reads in this turn is not known yet
        with Variables(watched) as variables:
            waits = watch.candidate.waits(variables)
        if not waits:
            self._hook.forget_loop()
            self._end(watch)
            self._refused.add((watched.f_code, watch.candidate.loop.first))
            self._places[watch.place].look_at = 0  # an outer loop may wait
        elif turns >= FEW_TURNS:
            self._tell(watch, stated)

    def _tell(self, watch: _Watch, stated: bool) -> None:
        now_s = monotonic()
        if watch.told_turns < self._most_turns <= watch.turns or now_s - watch.told_s >= TELL_S:
            watch.told_s, watch.told_turns = now_s, watch.turns
            self._hook.loop(watch.turns, watch.candidate.loop.first, stated, watch.text)

    def _end(self, watch: _Watch) -> None:
        self._watch = None
        if watch.told_turns:
            self._hook.loop(0, watch.candidate.loop.first, False, watch.text)
