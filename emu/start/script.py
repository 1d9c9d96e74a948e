"""Runs the user's script as `__main__`, as the interpreter runs what its command line names."""

from __future__ import annotations

import contextlib
import importlib.machinery
import itertools
import os
import re
import signal
import sys
import traceback
import types
from collections.abc import Callable
from dataclasses import dataclass

from ..contract.folding import CannotBePlayed, NeedsParts
from ..interpreter.code_owner import Owner, owner_of
from ..interpreter.tracebacks import without_ours
from ..private.access import run_as_main
from .advice import advice
from .program import Program, ProgramKind

_SIZE_ASKED = re.compile(r"^.*?Tried to allocate [\d.]+ \w+\.")
_COLOURS = re.compile(r"\x1b\[[\d;:]*m")
MOST_FURTHER = 600
"""The number of characters up to which further lines of an exception's message follow the first one."""
MOST_WORDS = 2000
"""The number of characters of an exception's text that reach the coordinator. The rank's log has all."""


Explains = Callable[[BaseException], CannotBePlayed | None]


@dataclass(frozen=True, slots=True)
class ScriptEnd:
    """The way in which the script ended."""

    code: int
    """The exit code."""
    last_words: str = ""
    """The exception that ended it, in one line; "" if none did."""

    def __post_init__(self) -> None:
        if len(self.last_words) > MOST_WORDS:
            object.__setattr__(self, "last_words", f"{self.last_words[:MOST_WORDS]} ...")

    @classmethod
    def by(cls, code: int, words: str, raised_at: str, known: str = "") -> ScriptEnd:
        """Makes the end from its words. Words that are too long lose their end, and not where they come from."""
        short = words if len(words) <= MOST_WORDS else f"{words[:MOST_WORDS]} ..."
        end = cls(code)
        object.__setattr__(end, "last_words", f"{short}{raised_at}{known}")
        return end


def run(program: Program, explains: Explains = lambda error: None) -> ScriptEnd:
    """Runs the program to its end. An uncaught exception is printed as the interpreter would print it. `explains`: why
    it is none of the program's fault, if it is not.
    """
    name = program.name
    sys.argv = ["-c" if program.kind is ProgramKind.SOURCE else name, *program.arguments]
    if program.kind is ProgramKind.MODULE:
        sys.path.insert(0, os.getcwd())
    elif program.kind is ProgramKind.SOURCE:
        sys.path.insert(0, "")
    elif os.path.exists(name):
        is_package = os.path.isdir(name) or _is_zip(name)
        sys.path.insert(0, name if is_package else os.path.dirname(os.path.realpath(name)))
    else:
        print(f"{sys.executable}: can't open file {name!r}: [Errno 2] No such file or directory", file=sys.stderr)
        return ScriptEnd(2)
    # The script is `__main__` from now on: its pickles and `import __main__` must not find the forker's.
    main_module = types.ModuleType("__main__")
    sys.modules["__main__"] = main_module
    vars(main_module)["__builtins__"] = __builtins__
    try:
        if program.kind is ProgramKind.MODULE:
            run_as_main(name)
        elif program.kind is ProgramKind.SOURCE:
            exec(compile(name, "<string>", "exec", dont_inherit=True), vars(main_module))
        elif sys.path[0] == name:
            run_as_main("__main__", alter_argv=False)
        else:
            _run_file(name, vars(main_module))
    # These exits are the emulation's own: a traceback would point at the script.
    except (NeedsParts, CannotBePlayed) as error:
        return ScriptEnd(error.CODE, error.words)
    except SystemExit as error:
        # A check of the script's own may have failed only because folding gave it another rank's object.
        if _exit_code(error) and (unplayed := explains(error)) is not None:
            return ScriptEnd(unplayed.CODE, unplayed.words)
        said = f": {in_one_line(error.code)}" if isinstance(error.code, str) else ""
        return ScriptEnd.by(_exit_code(error), f"SystemExit{said}", _raised_at(error))
    except BaseException as error:
        print_traceback(error)
        if (unplayed := explains(error)) is not None:
            return ScriptEnd(unplayed.CODE, unplayed.words)
        code = 128 + signal.SIGINT if isinstance(error, KeyboardInterrupt) else 1
        known = f"; {hint}" if (hint := advice(error)) else ""
        if known:
            print(f"phantora-async: {hint}", file=sys.stderr)
        return ScriptEnd.by(code, words_of(error), _raised_at(error), known)
    return ScriptEnd(0)


def words_of(error: BaseException) -> str:
    """Returns the exception's own line, without the notes that were added to it, and without what its message says in
    further paragraphs: torch's errors end with variables that make them longer.
    """
    exception = traceback.TracebackException(type(error), error, None)
    exception.__notes__ = None
    words = list(exception.format_exception_only())[-1].strip()
    first = words.partition("\n\n")[0]
    if type(error).__name__ == "OutOfMemoryError":  # torch's: the rest of its paragraph says what the report does
        first = "".join(_SIZE_ASKED.findall(first)[:1]) or first
    return in_one_line(words if first.rstrip().endswith(":") else first)


def in_one_line(message: str) -> str:
    """Returns a message in one line, without colours. Of many lines it keeps those at the beginning, whole: what a
    message asks for comes before its lists. Of a traceback, such as that of a worker process, it keeps what was raised.
    """
    lines = _COLOURS.sub("", message).replace("\t", " ").splitlines()
    headed = [place for place, line in enumerate(lines) if line.endswith("Traceback (most recent call last):")]
    if headed:
        frames = itertools.takewhile(lambda line: line.startswith(" "), lines[headed[-1] + 1 :])
        lines[headed[0] : headed[-1] + 1 + len(list(frames))] = []
    text = ""
    for line in lines:
        if text and line.strip() and len(text) + len(line) > MOST_FURTHER:
            return f"{text} ..."
        text = f"{text} {line.strip()}".strip()
    return text


def print_traceback(error: BaseException) -> None:
    """Prints the traceback without frames of ours, through `sys.excepthook`, which the script may have set."""
    frames = without_ours(error).__traceback__
    flush(sys.stdout)
    with contextlib.suppress(OSError):  # the log's disk may be full: the last words still reach the coordinator
        try:
            sys.excepthook(type(error), error, frames)
        except OSError:
            raise
        except BaseException as in_hook:  # as the interpreter does it
            print("Error in sys.excepthook:", file=sys.__stderr__)
            in_hook.__traceback__ = (
                in_hook.__traceback__.tb_next if in_hook.__traceback__ else None
            )  # without this frame
            sys.__excepthook__(type(in_hook), in_hook, in_hook.__traceback__)
            print("\nOriginal exception was:", file=sys.__stderr__)
            sys.__excepthook__(type(error), error, frames)


def flush(file: object) -> None:
    """Flushes sys.stdout or sys.stderr, which a script may have closed or replaced by anything, None too."""
    with contextlib.suppress(Exception):
        file.flush()  # type: ignore[attr-defined]


def _run_file(path: str, namespace: dict[str, object]) -> None:
    """Runs a file as the interpreter runs the file on its command line; runpy.run_path would remove `__main__` at the
    end.
    """
    path = os.path.abspath(path)
    loader = importlib.machinery.SourceFileLoader("__main__", path)
    namespace.update(__file__=path, __loader__=loader, __cached__=None)
    with open(path, "rb") as file:
        source = file.read()
    exec(compile(source, path, "exec", dont_inherit=True), namespace)


def _is_zip(path: str) -> bool:
    """Tells whether this is a zip file with a `__main__` module, which Python runs as it runs a folder."""
    with open(path, "rb") as file:
        return file.read(4) == b"PK\x03\x04"


def _exit_code(error: SystemExit) -> int:
    if error.code is None:
        return 0
    if isinstance(error.code, int):
        return error.code & 0xFF if -(1 << 63) <= error.code < 1 << 63 else 0xFF
    with contextlib.suppress(Exception):  # its text, or sys.stderr, may be of the script's making
        print(error.code, file=sys.stderr)
    return 1


def _raised_at(error: BaseException) -> str:
    """Returns `` (train.py:17)``: the innermost line of the user's that the exception passed; "" if there is none."""
    at = ""
    for frame, line in traceback.walk_tb(error.__traceback__):
        file = frame.f_code.co_filename
        if owner_of(file) is Owner.USER:
            at = f" ({_below_working_directory(file)}:{line})"
    return at


def _below_working_directory(file: str) -> str:
    try:
        return file.removeprefix(os.getcwd().rstrip("/") + "/")
    except OSError:  # the script has removed it
        return file
