"""Decisions of the program by values that nobody computed: each line that makes one is told once, reads are counted.

A number that the program reads is printed in most cases, and an unknown one reads as 0. Whether a program branches by
it is looked up in its source, once for each place of a read: from there the value is followed (`flow`) through the
function and those that are defined in it, to its callers if it is returned, to functions of the program that get it,
also in a thread or a pool, and to other code of the same file if it is kept in an attribute or a variable of that code.
"""

from __future__ import annotations

import ast
import contextlib
import os
import sys
import textwrap
import types
from collections.abc import Callable, Collection, Iterator, Sequence
from types import CodeType, FrameType
from typing import TYPE_CHECKING, Any, NamedTuple

from ..interpreter.code_owner import Owner, owner_of
from ..interpreter.hook_library import Hook
from .conditions import Evaluation, Unknown
from .deciding_names import CHECKING
from .flow import Flow, Passed
from .frames import Variables, path_of, position_of, program_frames
from .loop_exits import SourceFile
from .scopes import name_of, walk

if TYPE_CHECKING:
    from torch import Tensor

_NESTED = frozenset(("<listcomp>", "<genexpr>", "<dictcomp>", "<setcomp>", "<lambda>"))
_ON_BEHALF = frozenset(("__contains__", "__iter__", "__float__", "__int__", "__bool__"))
"""Functions of tensors in PyTorch's Python code: their caller reads."""
_POOLS = (os.path.join("concurrent", "futures", "thread.py"), os.path.join("multiprocessing", "pool.py"))
"""Files of the standard library whose threads call functions of the program's."""
_OF_POOLS = frozenset((".result", ".map", ".imap", ".imap_unordered", ".starmap", ".apply", ".to_thread"))
"""Methods that give what such a function has returned."""
_DEEPEST = 3
"""Functions that are called with the value, in functions that are called with it."""
MOST_PLACES = 10_000


class Decision(NamedTuple):
    """Where the program decides, and how."""

    place: str
    """`file:line`"""
    text: str


class _Where(NamedTuple):
    """A running frame's expression."""

    code: CodeType
    instruction: int


class Decisions:
    """Of one process."""

    def __init__(self, hook: Hook, folder: str) -> None:
        """`folder`: where the program was started."""
        import torch

        self._hook = hook
        self._folder = folder
        self._torch = os.path.dirname(torch.__file__) + os.sep
        self._optimizers = os.path.join(self._torch, "optim") + os.sep
        self._printing = os.path.join(self._torch, "_tensor_str.py")
        self._places: dict[_Where, Decision | bool] = {}
        """By the place of a read: what is decided; True: its caller gets the value; False: nothing is known."""
        self._lines: dict[str, int] = {}
        self._checks = 0

    def report(self) -> None:
        """At the rank's end."""
        for place, reads in self._lines.items():
            self._hook.decided(reads, place)
        if self._checks:
            self._hook.decided(self._checks, "")

    def by_torch(self) -> bool:
        """Does PyTorch read for purposes of its own, as checks for overflow do?"""
        frame = next(self._frames(), None)
        if frame is None:
            return True
        file = frame.f_code.co_filename
        return self._is_torch_s(file) and file != self._printing

    def by_check(self) -> bool:
        """Does a library's check for overflow read?"""
        frame = next(self._frames(), None)
        if frame is None or frame.f_code.co_name not in CHECKING:
            return False
        return owner_of(frame.f_code.co_filename) is not Owner.USER

    def _is_torch_s(self, file: str) -> bool:
        return file.startswith(self._torch) and not file.startswith(self._optimizers)

    def _frames(self) -> Iterator[FrameType]:
        """Of the program, without PyTorch's functions that read on behalf of their caller."""
        for frame in program_frames():
            code = frame.f_code
            if not (code.co_name in _ON_BEHALF and code.co_filename.startswith(self._torch)):
                yield frame

    def note_read(self, tensor: Tensor, value: Any) -> None:
        """The program reads a floating-point value that nobody computed."""
        frames = list(self._frames())
        if not frames or self._is_torch_s(frames[0].f_code.co_filename):
            return
        decision = self._decision(frames)
        if decision is None:
            return
        line = self._hook.line()
        if decision.place.startswith(self._torch) and line:
            decision = Decision(line, f"{frames[0].f_code.co_qualname}: {decision.text}")
        self.count(decision.place)
        read_as = "0" if value is None else f"{value:g}" if isinstance(value, float) else str(value)
        writer = self._hook.writer(tensor.data_ptr())
        dtype = str(tensor.dtype).removeprefix("torch.")
        source = f"{dtype}, of {writer}" if writer else dtype
        self._hook.warn_once(
            f"decides {decision.place}",
            f"{decision.place} decides by a value that is not computed: {decision.text}. It is read at "
            f"{line or decision.place} ({source}) and taken as {read_as}{self.how_to_state(line)}",
        )

    def count_check(self) -> None:
        """A read of a check for overflow, which is taken as passed: it counts, and needs no warning."""
        self._checks += 1
        if self._checks & (self._checks - 1) == 0:
            self._hook.decided(self._checks, "")

    def how_to_state(self, line: str) -> str:
        """The end of a message about a read at this line."""
        place = line.removeprefix(self._folder + os.sep)
        return f"; --value {place}=EXPRESSION states what is read there" if line else ""

    def count(self, place: str) -> None:
        """A read at this line, or by which this line decides."""
        reads = self._lines[place] = self._lines.get(place, 0) + 1
        if reads & (reads - 1) == 0:  # 1, 2, 4, 8 ... reads
            self._hook.decided(reads, place)

    # ---- finding it ------------------------------------------------------------------------------------------------
    def _decision(self, frames: Sequence[FrameType]) -> Decision | None:
        for n, frame in enumerate(frames):
            caller = frames[max(n - 1, 0)]  # a pool's thread gives the value to whoever asks for it
            pool = frame.f_code.co_filename.endswith(_POOLS)
            where = _Where(caller.f_code, -1) if pool else _Where(frame.f_code, frame.f_lasti)
            found = self._places.get(where)
            if found is None:
                if len(self._places) > MOST_PLACES:
                    self._places.clear()
                found = self._result_of(caller) if pool else self._look(frames[n:], frames[0])
                self._places[where] = found
            if isinstance(found, Decision):
                return found
            if not found or self._is_torch_s(frame.f_code.co_filename):
                return None
        return None

    def _result_of(self, frame: FrameType) -> Decision | bool:
        """Of a function that a pool's thread has called, in code of its file that names it; if it is none of the
        program's, in the program's file.
        """
        file, name = frame.f_code.co_filename, frame.f_code.co_name
        if owner_of(file) is not Owner.USER:
            file, name = str(getattr(sys.modules["__main__"], "__file__", "")), ""
        where = frame.f_code if name in _NESTED else None
        return (
            self._in_file(path_of(file, self._folder), [(_OF_POOLS, where)], naming=name if where is None else "")
            or False
        )

    def _is_followed(self, code: CodeType) -> bool:
        """Is it the user's, or an optimizer's or scheduler's?"""
        return owner_of(code.co_filename) is Owner.USER or code.co_filename.startswith(self._optimizers)

    def _look(self, frames: Sequence[FrameType], innermost: FrameType) -> Decision | bool:
        """What the first of these frames does with the value of its expression. `innermost`: the one that reads."""
        frame = frames[0]
        code = frame.f_code
        read = position_of(code, frame.f_lasti)
        body: Sequence[ast.AST]
        if code.co_name in _NESTED:  # it is part of a function that has the whole expression
            enclosing = next((one for one in frames if _encloses(one.f_code, code)), None)
            body = self._body_around(code) if enclosing is None else self._body(enclosing.f_code)
            frame = enclosing or frame
        else:
            body = self._body(code)
        if not body:
            return False
        if not self._is_followed(frame.f_code):  # of a library what it does with its own reads, at once
            flow = Flow(body, read=read)
            first = flow.decision() if frames[0] is innermost else None
            if first is not None:
                return _decided(path_of(frame.f_code.co_filename, self._folder), first)
            return flow.returned() or code.co_name in _NESTED
        with Variables(frame) as variables:
            evaluation = Evaluation(variables, {}, self._hook)
            return self._of(Flow(body, read=read), frame.f_code, evaluation.thing, 0) or code.co_name in _NESTED

    def _of(self, flow: Flow, code: CodeType, thing: Callable[[ast.expr], Any], depth: int) -> Decision | bool:
        file = path_of(code.co_filename, self._folder)
        first = flow.decision()
        if first is not None:
            return _decided(file, first)
        if depth < _DEEPEST:
            for passed in flow.calls():
                found = self._in_callee(passed, thing, depth + 1)
                if found is not None:
                    return found
        if owner_of(code.co_filename) is Owner.USER:
            elsewhere = self._elsewhere(file, flow, code, thing)
            if elsewhere is not None:
                return elsewhere
        return flow.returned()

    def _in_callee(self, passed: Passed, thing: Callable[[ast.expr], Any], depth: int) -> Decision | None:
        """Of a function of the user's, or of an optimizer's or scheduler's, that gets the value."""
        function, bound = _function(passed.function, thing)
        if function is None or not passed.places:
            return None
        code = function.__code__
        if not self._is_followed(code):
            return None
        places = [one + bound if isinstance(one, int) else one for one in passed.places]
        names = {
            code.co_varnames[one] if isinstance(one, int) else one
            for one in places
            if isinstance(one, str) or one < code.co_argcount
        }
        body = self._body(code)
        if not body or not names:
            return None
        flow = Flow(body, names=frozenset(names))
        inner = {**function.__globals__, **_captured(function)}

        def in_callee(node: ast.expr) -> Any:
            if isinstance(node, ast.Name) and node.id in inner:
                return inner[node.id]
            raise Unknown

        found = self._of(flow, code, in_callee, depth)
        return found if isinstance(found, Decision) else None

    def _elsewhere(self, file: str, flow: Flow, code: CodeType, thing: Callable[[ast.expr], Any]) -> Decision | None:
        """In other code of the file, by an attribute or a variable of the code around that has the value."""
        outer = {name for name in flow.names if name in code.co_names and not _is_code(name, thing)}
        free = flow.names & set(code.co_freevars)
        kept = flow.attributes()
        wide = kept | (outer if code.co_name != "<module>" else set())
        return self._in_file(file, [(wide, None), (kept | free, code)] if free else [(wide, None)], flow.filled)

    def _in_file(
        self,
        file: str,
        where: Sequence[tuple[Collection[str], CodeType | None]],
        filled: Collection[str] = (),
        naming: str = "",
    ) -> Decision | None:
        """In a file, by names that have the value: in the code around this code, or everywhere. `filled`: containers.
        `naming`: only in code with this name.
        """
        try:
            source = SourceFile(file)
        except (OSError, SyntaxError, ValueError, RecursionError):
            return None
        for names, code in where:
            bodies = [source.module, *source.functions()] if code is None else [source.around(code)]
            attributes = {name for name in names if name.startswith(".")}
            for n, body in enumerate(bodies):
                if naming and not any(name_of(node).lstrip(".") == naming for node in walk(body)):
                    continue
                of_body = names if n == 0 else attributes
                flow = Flow(body, names=of_body, filled=set(filled) & set(of_body)) if of_body else None
                decided = flow.decision() if flow is not None else None
                if decided is not None:
                    return _decided(file, decided)
        return None

    def _body_around(self, code: CodeType) -> Sequence[ast.AST]:
        """Of the function, or of the module, that has this part of its file."""
        try:
            return SourceFile(path_of(code.co_filename, self._folder)).around(code)
        except (OSError, SyntaxError, ValueError, RecursionError):
            return ()

    def _body(self, code: CodeType) -> Sequence[ast.AST]:
        """Of a function or of the program; of a function the lines of its own are read alone."""
        path = path_of(code.co_filename, self._folder)
        try:
            if code.co_name == "<module>":
                return SourceFile(path).module
            return _function_body(path, code)
        except (OSError, SyntaxError, ValueError, RecursionError):
            return ()


def _function_body(path: str, code: CodeType) -> Sequence[ast.AST]:
    last = max((line for _, _, line in code.co_lines() if line), default=code.co_firstlineno)
    with open(path, encoding="utf-8", errors="replace") as file:
        lines = file.read().split("\n")
    first = code.co_firstlineno
    text = lines[first - 1 : last]
    while last < len(lines) and (not lines[last].strip() or _indent(lines[last]) > _indent(text[0])):
        text.append(lines[last])  # the rest of the last statement, and functions within
        last += 1
    if last < len(lines) and lines[last].strip()[:1] in ")]}":
        text.append(lines[last])
    indented = text[0][:1].isspace()
    tree = ast.parse("\n".join(["if True:", *text] if indented else text))
    ast.increment_lineno(tree, first - 2 if indented else first - 1)
    parameters = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and node.name == code.co_name:
            return node.body
        if isinstance(node, ast.Lambda) and code.co_name == "<lambda>":
            of = node.args
            if tuple(one.arg for one in (*of.posonlyargs, *of.args, *of.kwonlyargs)) == parameters:
                return [ast.copy_location(ast.Return(node.body), node)]
    return ()


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())


def _function(node: ast.expr, thing: Callable[[ast.expr], Any]) -> tuple[Any, int]:
    """The Python function that a call runs, as far as it can be told without running anything, else None; and how many
    arguments it gets before those of the call.
    """
    bound = 0
    try:
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Call):  # of an object that is made there
            made = thing(node.value.func)
            found = _of_class(made, node.attr) if isinstance(made, type) else None
            bound = 1
        elif isinstance(node, ast.Attribute):
            owner = thing(node.value)
            found = _of_class(owner, node.attr)
            bound = int(not isinstance(owner, (types.ModuleType, type)))
        else:
            found = thing(node)
    except Unknown:
        return None, 0
    if isinstance(found, staticmethod):
        return found.__func__, 0
    if isinstance(found, (types.MethodType, classmethod)):
        found, bound = found.__func__, 1
    if isinstance(found, types.FunctionType):
        return found, bound
    called = _of_class(found, "__init__" if isinstance(found, type) else "__call__")
    return (called, 1) if isinstance(called, types.FunctionType) else (None, 0)


def _captured(function: types.FunctionType) -> dict[str, Any]:
    """Variables of the code around it that it sees, and that have a value."""
    found = {}
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        with contextlib.suppress(ValueError):
            found[name] = cell.cell_contents
    return found


def _encloses(outer: CodeType, inner: CodeType) -> bool:
    """Is the inner code part of the outer, which is a function's or a module's?"""
    parts = [part for part in outer.co_consts if isinstance(part, types.CodeType)]
    return outer.co_name not in _NESTED and any(
        part is inner or (part.co_name in _NESTED and _has_part(part, inner)) for part in parts
    )


def _has_part(outer: CodeType, inner: CodeType) -> bool:
    parts = [part for part in outer.co_consts if isinstance(part, types.CodeType)]
    return any(part is inner or _has_part(part, inner) for part in parts)


def _is_code(name: str, thing: Callable[[ast.expr], Any]) -> bool:
    """Is it the name of a module, a function or a class?"""
    try:
        return isinstance(thing(ast.Name(name, ast.Load())), (types.ModuleType, types.FunctionType, type))
    except Unknown:
        return False


def _of_class(owner: Any, name: str) -> Any:
    """What its class, or a module, has by this name."""
    if isinstance(owner, types.ModuleType):
        return vars(owner).get(name)
    for cls in owner.__mro__ if isinstance(owner, type) else type(owner).__mro__:
        if name in cls.__dict__:
            return cls.__dict__[name]
    return None


def _decided(file: str, node: ast.expr) -> Decision:
    return Decision(f"{file}:{node.lineno}", textwrap.shorten(ast.unparse(node), 80, placeholder=" ..."))
