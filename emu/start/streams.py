"""Standard streams of a forked interpreter: made anew of the descriptors that it has, as a new interpreter makes them.

The forker's own streams know where they were made: on a file in which one can seek, without a buffer. In a process
whose output is a pipe they would seek in vain.
"""

from __future__ import annotations

import codecs
import contextlib
import io
import locale
import os
import sys
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from .program import InterpreterOptions

FAILED_TO_FLUSH = 120
"""The exit code of an interpreter that could not write what its streams still held."""
_NAMES = ("stdin", "stdout", "stderr")
_PLAIN_LOCALES = ("C", "POSIX")
_UTF8_LOCALES = ("C.UTF-8", "C.utf8", "UTF-8")
"""The locales by which Python replaces a plain locale: bytes that are no UTF-8 pass through the streams unchanged."""


class NoSuchEncoding(Exception):
    """Raised if PYTHONIOENCODING names an encoding, or a way to treat errors, that Python does not have."""


@dataclass(frozen=True, slots=True)
class _Text:
    """The encoding of the streams."""

    encoding: str
    errors: str


def make(
    options: InterpreterOptions,
    environment: Mapping[str, str],
    closed: Collection[int] = (),
    unbuffered: Collection[int] = (),
) -> None:
    """Makes sys.stdin, sys.stdout and sys.stderr. `closed`: descriptors for which there is no stream; `unbuffered`:
    those written to at once. Raises NoSuchEncoding.
    """
    if options.ignores_environment:
        environment = {name: value for name, value in environment.items() if not name.startswith("PYTHON")}
    text = _text(options, environment)
    all_at_once = options.unbuffered or bool(environment.get("PYTHONUNBUFFERED"))
    for number, name in enumerate(_NAMES):
        stream = None
        if number not in closed:
            before = getattr(sys, f"__{name}__")
            stream = _stream(number, text, all_at_once or number in unbuffered, before)
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)


def _stream(number: int, text: _Text, at_once: bool, before: object) -> io.TextIOWrapper | None:
    """Makes a stream as CPython's `create_stdio` does. `before` becomes the new stream: modules that the forker has
    imported keep it, for example in handlers of `logging`.
    """
    writes = number > 0
    try:
        raw = io.FileIO(number, "wb" if writes else "rb", closefd=False)
    except OSError:  # a folder
        return None
    size = max(os.fstat(number).st_blksize, 2)
    buffer: Any = raw if writes and at_once else (io.BufferedWriter if writes else io.BufferedReader)(raw, size)
    vars(raw)["name"] = f"<{_NAMES[number]}>"
    stream = before if type(before) is io.TextIOWrapper else io.TextIOWrapper.__new__(io.TextIOWrapper)
    try:
        io.TextIOWrapper.__init__(
            stream,
            buffer,
            text.encoding,
            "backslashreplace" if number == 2 else text.errors,
            newline="\n",
            line_buffering=not at_once and (number == 2 or raw.isatty()),
            write_through=at_once,
        )
    except LookupError as error:
        raise NoSuchEncoding(str(error)) from None
    vars(stream)["mode"] = "w" if writes else "r"
    return stream


def _text(options: InterpreterOptions, environment: Mapping[str, str]) -> _Text:
    """Chooses the encoding as CPython's configuration does, from PYTHONIOENCODING, the UTF-8 mode and the locale."""
    named, _, errors = environment.get("PYTHONIOENCODING", "").partition(":")
    if named and not errors:
        errors = "strict"
    with contextlib.suppress(locale.Error):  # which is not installed: the one of before stays
        locale.setlocale(locale.LC_CTYPE, "")
    used = locale.setlocale(locale.LC_CTYPE)
    utf8 = _utf8_mode(options, environment, used)
    if used in _PLAIN_LOCALES and not environment.get("LC_ALL") and environment.get("PYTHONCOERCECLOCALE") != "0":
        used = _UTF8_LOCALES[0]
        with contextlib.suppress(locale.Error):
            locale.setlocale(locale.LC_CTYPE, used)
    by_locale = "utf-8" if utf8 else locale.nl_langinfo(locale.CODESET) or "utf-8"
    if not errors:
        escapes = utf8 or used in _PLAIN_LOCALES + _UTF8_LOCALES
        errors = "surrogateescape" if escapes else "strict"
    try:
        return _Text(codecs.lookup(named or by_locale).name, errors)
    except LookupError as error:
        raise NoSuchEncoding(str(error)) from None


def _utf8_mode(options: InterpreterOptions, environment: Mapping[str, str], used: str) -> bool:
    """Tells whether Python's UTF-8 mode is on for the streams: what `open` takes by default was decided when the forker
    started.
    """
    if options.utf8 is not None:
        return options.utf8
    if environment.get("PYTHONUTF8") in ("0", "1"):
        return environment["PYTHONUTF8"] == "1"
    return used in _PLAIN_LOCALES or sys.version_info >= (3, 15)


def flush_at_end() -> bool:
    """Writes what the streams hold, at the interpreter's end. Returns False, after a message as Python's, if that
    fails.
    """
    written = True
    for stream in (sys.stdout, sys.stderr):
        try:
            if stream is not None and not stream.closed:
                stream.flush()
        except Exception as error:
            written = False
            with contextlib.suppress(Exception):
                if stream is sys.stdout:
                    print(f"Exception ignored in: {stream!r}\n{type(error).__name__}: {error}", file=sys.stderr)
    return written


def same_file(number: int, paths: Collection[str]) -> bool:
    """Tells whether the descriptor leads to one of these files."""
    for path in paths:
        with contextlib.suppress(OSError):  # there is no such file, or it is not to be seen from here
            if os.path.samestat(os.fstat(number), os.stat(path)):
                return True
    return False
