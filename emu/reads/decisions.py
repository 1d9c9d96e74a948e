"""Decisions of the program by values that nobody computed: each line that makes one is told once, reads are counted.

A number that the program reads is printed in most cases, and an unknown one reads as 0. It is marked (`marked`,
`arrays`), so is the host's memory that it is copied to (`host_memory`), and what is computed of both. A comparison of
such a number, or another use that chooses, is looked up here: which line makes it, and whether it is worth telling.
Where a function in C takes the plain number, the source tells what becomes of its result (`flow`).
"""

from __future__ import annotations

import ast
import os
import sys
import textwrap
import threading
from collections.abc import Callable
from types import FrameType
from typing import TYPE_CHECKING, Any, NamedTuple

from ..interpreter.code_owner import Owner, owner_of
from ..interpreter.hook_library import Hook
from . import arrays, compiled_calls, marked
from .branches import only_tells, reads_rates, takes_as_infinite
from .carriers import Carriers
from .deciding_names import CHECKING, EXTREMES, QUIET_LIBRARIES, QUIET_MODULES
from .elements import Flags, flagged, flags_of
from .expressions import asks_if_finite
from .flow import Flow
from .frames import MOST_PLACES, Position, path_of, position_of, program_frames
from .host_memory import HostMemory
from .marked import Mark
from .source_text import body_around, expression_at, tree_of

if TYPE_CHECKING:
    from torch import Tensor

_ON_BEHALF = frozenset(("__array__", "__contains__", "__iter__", "__float__", "__int__", "__bool__"))
"""Functions of tensors in PyTorch's Python code: their caller reads."""
_OVERFLOWING = frozenset(("exp", "exp2", "expm1", "pow", "cosh", "sinh"))
_TRUTH = frozenset(("__bool__", "__nonzero__", "is_nonzero"))
_WHOLE = frozenset(("__int__", "__long__"))
_CHOOSING = frozenset(("isclose", "linear_sum_assignment"))


class Decision(NamedTuple):
    """A place where the program decides, and how."""

    place: str
    """The line, as `file:line`."""
    text: str
    extreme: bool
    """True for `min(losses)` or the like: the smallest number is followed as such a number, whichever it is."""
    quiet: bool
    """True if it asks whether the number is finite, or the program only tells what it finds."""


class Decisions:
    """The decisions of one process."""

    def __init__(self, hook: Hook, folder: str, carriers: Carriers) -> None:
        """`folder`: where the program was started."""
        import torch

        self._hook = hook
        self._folder = folder
        self._torch = os.path.dirname(torch.__file__) + os.sep
        self._optimizers = os.path.join(self._torch, "optim") + os.sep
        self._schedulers = os.path.join(self._optimizers, "lr_scheduler.py")
        self._printing = os.path.join(self._torch, "_tensor_str.py")
        self._known: dict[tuple[object, ...], Any] = {}
        """Answers to the questions below, which look at source: by the question, the code and instruction that a frame
        runs, and what else the question is given.
        """
        self._lines: dict[str, int] = {}
        self._checks = 0
        self._on_this_thread = threading.local()
        self.host = HostMemory(lambda: self.at_first_on_host(), hook.unknown_on_host)
        self.at_first_on_host: Callable[[], None] = lambda: None
        """This function is called when the host's memory has such a value for the first time."""
        self.forget_on_device: Callable[[Tensor, Flags | None], None] = lambda tensor, flags: None
        """This function is called with a tensor on the device whose values, or those of the flagged elements, follow
        from such a number.
        """
        self.flags_on_device: Callable[[Tensor], Flags | None] = lambda tensor: None
        """Returns which elements of a tensor on the device nobody computed; None: all or none."""
        self.is_unknown: Callable[[Tensor], bool] = lambda tensor: False
        """Tells whether this is a small tensor that nobody computed, at least in part."""
        self._runs_compiled: Callable[[], Any] = lambda: None
        compiled_calls.install(self._ask_whether_compiled)
        carriers.replace = self._replace
        if carriers.usable:
            marked.follow(self)

    def _ask_whether_compiled(self, runs_compiled: Callable[[], Any]) -> None:
        self._runs_compiled = runs_compiled

    def report(self) -> None:
        """Sends the counts, at the rank's end."""
        for place, reads in self._lines.items():
            self._hook.decided(reads, place)
        if self._checks:
            self._hook.decided(self._checks, "")

    def by_torch(self) -> bool:
        """Tells whether PyTorch reads for purposes of its own, as checks for overflow do."""
        frame = self._frame()
        if frame is None:
            return True
        file = frame.f_code.co_filename
        return self._is_torch_s(file) and file != self._printing

    def by_check(self) -> bool:
        """Tells whether a library's check for overflow reads."""
        frame = self._frame()
        if frame is None or frame.f_code.co_name not in CHECKING:
            return False
        return owner_of(frame.f_code.co_filename) is not Owner.USER

    def _is_torch_s(self, file: str) -> bool:
        return file.startswith(self._torch) and not file.startswith(self._optimizers)

    def _frame(self) -> FrameType | None:
        """Returns the program's frame, without PyTorch's functions that read on behalf of their caller."""
        for frame in program_frames():
            code = frame.f_code
            if not (code.co_name in _ON_BEHALF and code.co_filename.startswith(self._torch)):
                return frame
        return None

    def read_at(self) -> str:
        """Returns `file:line` of what reads now: the script's line, or that of a library which reads for itself. A
        script calls much by one line, `trainer.train()` for example, and what is stated for that line holds for every
        read in it.
        """
        for frame in program_frames():
            file = frame.f_code.co_filename
            owner = owner_of(file)
            if owner is Owner.USER:
                break
            if owner is Owner.PACKAGE and not file.startswith(self._torch) and _package(file) not in _CALCULATING:
                return f"{path_of(file, self._folder)}:{frame.f_lineno}"
        return self._hook.line()

    # ---- numbers ---------------------------------------------------------------------------------------------------
    def note_read(self, tensor: Tensor, value: Any, target: Tensor | None = None) -> None:
        """Notes that the program reads a floating-point value that nobody computed. `target`: the tensor of the host's
        that it is copied to.
        """
        writer = self._hook.writer(tensor.data_ptr())
        dtype = str(tensor.dtype).removeprefix("torch.")
        taken_as = "0" if value is None else f"{value:g}" if isinstance(value, float) else str(value)
        mark = Mark(self.read_at(), f"{dtype}, of {writer}" if writer else dtype, taken_as)
        self._on_this_thread.mark = mark
        if self._runs_compiled() is not None:
            self.leaves(mark, counts=False)  # a compiled function goes on with an ordinary number
            return
        self._hook.unknown_read()
        if target is not None:
            self.host.mark(target, mark, self.flags_on_device(tensor))

    def note_read_of_host(self, mark: Mark) -> None:
        """Notes that PyTorch reads such a value of the host's."""
        self._on_this_thread.mark = mark
        self._hook.unknown_read()

    def result(self, value: Any, mark: Mark, flags: Flags | None = None) -> Any:
        """Returns what follows from such a number, as the program gets it. `flags`: the elements of a tensor, an array
        or lists that follow from it; None: all.
        """
        kind = type(value)
        if kind in marked.BY_BASE:
            if kind is float or (kind.__module__ == "numpy" and kind.__name__ != "ndarray"):
                return marked.marked(value, mark)
            if value.dtype.kind not in "fc":
                return value
            array = value.view(marked.BY_BASE[kind])
            array.mark, array.flags_in = mark, arrays.shaped(flags, array)
            return array
        if flags is not None and kind is list:
            return flagged(value, iter(flags), lambda one: self.result(one, mark))
        if kind is list or kind is tuple:
            return kind([self.result(one, mark) for one in value])
        if hasattr(value, "untyped_storage") and (value.is_floating_point() or value.is_complex()):
            if flags is not None and len(flags) != value.numel():
                flags = None
            if value.is_cuda:
                self.forget_on_device(value, flags)
            else:
                self.host.mark(value, mark, flags)
        elif isinstance(value, tuple) and hasattr(value, "_fields"):
            for one in value:
                self.result(one, mark)
        return value

    def loaded(self, value: Any, flags: Flags | None) -> Any:
        """Returns a number or tensor of a file, of which nobody computed what was saved, as such a value; `flags`:
        these elements of it.
        """
        return self.result(value, Mark("", "loaded from a file", "saved"), flags)

    def unknown_elements(self, value: Any) -> bool | Flags:
        """Says whether nobody computed a number, an array or a small tensor; flags say so of each element."""
        if hasattr(value, "untyped_storage"):
            return self.is_unknown(value) and (self._flags(value) or True)
        return marked.mark_of(value) is not None and (self._flags(value) or True)

    def _replace(self, name: str, result: Any, failed: bool, just_read: bool, first: Any) -> Any:
        """Returns what the program gets of a function in C that has read such a number or was called with one."""
        try:
            mark = marked.first_mark((first,))
            if mark is None and just_read:
                mark = self._on_this_thread.mark
            elif mark is None and isinstance(first, str):
                mark = Mark("", "saved by the program", str(result))
            elif mark is None and hasattr(first, "untyped_storage"):
                mark = self.host.find(first)
            if mark is None:
                return result
            if name == "numpy":
                self.note_read_of_host(mark)  # numpy's functions take an array without its class
                if (reading := next(program_frames(), None)) is not None and reading.f_code.co_name == "__array__":
                    self.leaves(mark, counts=False)
            if name in _TRUTH or name in _CHOOSING or failed:
                self.decides(mark)
            elif name in _WHOLE:
                self.leaves(mark, counts=True)
            elif name in _OVERFLOWING and (
                (frame := self._deciding_frame()) is not None and self._at(self._handles_overflow, frame[0])
            ):
                self.decides(mark)
            if name in EXTREMES:
                result = marked.plain(result)  # another object: `losses.index(min(losses))` compares numbers
            return self.result(result, mark, self._flags(first))
        except Exception as error:  # C code calls, which cannot pass it on
            self._hook.warn_once(f"following {name}", f"a number could not be followed through {name}: {error!r}")
            return result

    def _flags(self, value: Any) -> Flags | None:
        """Returns which elements of what is made of the value follow from unknown numbers; None: all."""
        if hasattr(value, "untyped_storage"):
            return self.flags_on_device(value) if value.is_cuda else self.host.flags(value)
        flags = flags_of(value, self._flags_of_leaf)
        return None if flags is None or all(flags) or not any(flags) else flags

    def _flags_of_leaf(self, value: Any) -> Flags | None:
        if hasattr(value, "untyped_storage"):
            unknown = self.is_unknown(value)
            return (self._flags(value) if unknown else None) or [unknown] * value.numel()
        if (flags := getattr(value, "flags_in", None)) is not None:
            return flags.ravel().tolist()
        if isinstance(value, (bool, int, float)) or hasattr(value, "dtype"):
            return [marked.mark_of(value) is not None] * getattr(value, "size", 1)
        return None

    # ---- what the program does with them ---------------------------------------------------------------------------
    def decides(self, mark: Mark, *, orders: bool = False) -> None:
        """Notes that the program decides by such a number now. `orders`: by which of two numbers is smaller."""
        frame = self._deciding_frame()
        if frame is None:
            return
        found: Decision = self._at(self._look, frame[0])
        if orders and found.extreme:
            self.note_read_of_host(mark)  # so that its result is marked
            return
        if found.quiet:
            return
        self._tell(mark, found.place, f"{frame[1]}{found.text}")

    def leaves(self, mark: Mark, *, counts: bool) -> None:
        """Notes that a function in C takes the plain number."""
        if not counts and self._hook.carrying():
            self.note_read_of_host(mark)  # so that the function's result is marked, whatever it took the number from
            return
        frame = self._deciding_frame()
        if frame is None:
            return
        found: Decision | None = self._at(self._decided_later, frame[0], counts)
        if found is not None:
            self._tell(mark, found.place, f"{frame[1]}{found.text}")

    def _at(self, question: Callable[..., Any], frame: FrameType, *more: bool) -> Any:
        """Returns the answer for what the frame runs now, which is looked up in the source once."""
        where = (question, frame.f_code, frame.f_lasti, *more)
        if where not in self._known:
            if len(self._known) > MOST_PLACES:
                self._known.clear()
            self._known[where] = question(frame, *more)
        return self._known[where]

    def _decided_later(self, frame: FrameType, counts: bool) -> Decision | None:
        """Returns the decision that the calling function makes by what the function in C has made of the number; None
        if there is none.
        """
        code = frame.f_code
        file = path_of(code.co_filename, self._folder)
        flow = Flow(body_around(file, code), read=position_of(code, frame.f_lasti))
        node = flow.decision()
        if node is not None:
            return Decision(f"{file}:{node.lineno}", _short(ast.unparse(node)), False, False)
        return self._at(self._look, frame) if counts and flow.returned() else None

    def _deciding_frame(self) -> tuple[FrameType, str] | None:
        """Returns the frame whose line is told, and what its text begins with; None if the decision is not worth
        telling: it is PyTorch's own or a logger's.
        """
        of_optimizer = ""
        for frame in program_frames():
            code = frame.f_code
            file = code.co_filename
            if self._is_torch_s(file):
                if code.co_name in _ON_BEHALF:
                    continue
                return None
            if file == self._schedulers:
                read_at = self._rates_are_read()
                if not read_at:
                    return None
                of_optimizer = (
                    of_optimizer or f"the learning rate follows, which {read_at} reads, by {code.co_qualname}: "
                )
            if file.startswith(self._optimizers):
                if not of_optimizer and code.co_name == "__init__":
                    return None  # it only checks its arguments: `if not 0.0 <= lr: raise ...`
                of_optimizer = of_optimizer or f"{code.co_qualname}: "
                continue
            owner = owner_of(file)
            if owner is Owner.USER:
                return frame, of_optimizer
            if owner is Owner.STDLIB:
                if os.path.basename(file) in QUIET_MODULES or os.path.basename(os.path.dirname(file)) in QUIET_MODULES:
                    return None
            elif owner is Owner.PACKAGE:
                package = _package(file)
                if package in QUIET_LIBRARIES or code.co_name in CHECKING:
                    return None
                if package not in _CALCULATING:
                    return frame, of_optimizer
        return None

    def _rates_are_read(self) -> str:
        """Returns the first place in the program's own files that reads an optimizer's learning rate, other than to
        tell it; "" if there is none: a rate changes neither kernels nor shapes.
        """
        for module in [*sys.modules.values()]:
            file = getattr(module, "__file__", None)
            if isinstance(file, str) and owner_of(file) is Owner.USER:
                path = path_of(file, self._folder)
                if line := reads_rates(tree_of(path).body):
                    return f"{path}:{line}"
        return ""

    def _look(self, frame: FrameType) -> Decision:
        position = position_of(frame.f_code, frame.f_lasti)
        file = path_of(frame.f_code.co_filename, self._folder)
        line = position.line or frame.f_lineno
        node = expression_at(file, position)
        if node is None:
            return Decision(f"{file}:{line}", "an expression", False, False)
        extreme = isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in EXTREMES
        extreme = extreme and not any(one.arg == "key" for one in node.keywords)  # type: ignore[attr-defined]
        quiet = isinstance(node, ast.Compare) and asks_if_finite(node.left, node.comparators[0])
        quiet = quiet or only_tells(body_around(file, frame.f_code), position, self._rates_are_read)
        return Decision(f"{file}:{line}", _short(ast.unparse(node)), extreme, quiet)

    def _handles_overflow(self, frame: FrameType) -> bool:
        """Tells whether the program's function goes on, by more than a constant, if the number is too large for its
        call.
        """
        code, position = frame.f_code, position_of(frame.f_code, frame.f_lasti)
        body = body_around(path_of(code.co_filename, self._folder), code)
        return any(_catches(node, position) for one in body for node in ast.walk(one))

    def _tell(self, mark: Mark, place: str, text: str) -> None:
        if place in mark.counted:
            return
        mark.counted.add(place)
        self.count(place)
        read = f"It is read at {mark.line} ({mark.source})" if mark.line else f"It was {mark.source or 'read before'}"
        self._hook.warn_once(
            f"decides {place}",
            f"{place} decides by a value that is not computed: {text}. {read} and taken as {mark.taken_as}"
            f"{self.how_to_state(mark.line)}",
        )

    def count_check(self) -> None:
        """Counts a read of a check for overflow, which is taken as passed: it needs no warning."""
        self._checks += 1
        if self._checks & (self._checks - 1) == 0:
            self._hook.decided(self._checks, "")

    def how_to_state(self, line: str) -> str:
        """Returns the end of a message about a read at this line."""
        place = line.removeprefix(self._folder + os.sep).rpartition("-packages/")[2]
        return f"; --value {place}=EXPRESSION states what is read there" if line else ""

    def count(self, place: str) -> None:
        """Counts a read at this line, or by which this line decides."""
        reads = self._lines[place] = self._lines.get(place, 0) + 1
        if reads & (reads - 1) == 0:  # 1, 2, 4, 8 ... reads
            self._hook.decided(reads, place)


_CALCULATING = frozenset(("numpy", "scipy", "pandas", "sklearn"))
"""Packages whose comparisons belong to the line that calls them."""


def _package(file: str) -> str:
    """Returns the name of the installed package that the file is of."""
    return file.rpartition("-packages/")[2].partition("/")[0].removesuffix(".py")


def _catches(node: ast.AST, position: Position) -> bool:
    if not isinstance(node, ast.Try) or not node.body[0].lineno <= position.line <= (node.body[-1].end_lineno or 0):
        return False
    caught = [ast.unparse(one.type) if one.type is not None else "Exception" for one in node.handlers]
    handlers = [
        handler
        for handler, text in zip(node.handlers, caught, strict=True)
        if any(name in text for name in ("OverflowError", "ArithmeticError", "Exception"))
    ]
    return not all(map(takes_as_infinite, handlers))


def _short(text: str) -> str:
    return textwrap.shorten(text, 80, placeholder=" ...")
