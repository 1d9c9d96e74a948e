"""The standard streams of a forked interpreter are those that a new interpreter would have: asked of one."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from emu.start.program import InterpreterOptions, Program, ProgramKind, parse

ROOT = Path(__file__).parents[2]
PROBE = r"""
import json, os, sys
def of(stream):
    if stream is None: return None
    names = ("name", "mode", "encoding", "errors", "newlines", "line_buffering", "write_through")
    found = {name: getattr(stream, name) for name in names}
    found["can"] = [stream.seekable(), stream.readable(), stream.writable(), stream.isatty()]
    found["under"] = type(stream.buffer).__name__, stream.fileno()
    return found
found = {name: of(getattr(sys, name)) for name in ("stdin", "stdout", "stderr")}
found["same"] = sys.stdout is sys.__stdout__, sys.stdin is sys.__stdin__, sys.stderr is sys.__stderr__
for stream in (sys.stdin, sys.stdout, sys.stderr):
    if stream is not None:
        stream.reconfigure(errors="replace", encoding="utf-8")
if sys.stdin is not None and not sys.stdin.isatty(): found["read"] = sys.stdin.read()
os.write(int(os.environ["TELL"]), json.dumps(found).encode())
"""
WARM = r"""
import json, os, sys
arguments, environment, above = json.loads(sys.argv[1])
sys.path.insert(0, ROOT)
from emu.start import program, streams
what = program.parse(arguments)
for number in range(3): os.dup2(above[number] if above[number] >= 0 else os.open(os.devnull, os.O_RDWR), number)
os.environ.clear(); os.environ.update(environment)
streams.make(what.options, environment, [number for number in range(3) if above[number] < 0])
exec(what.name, {})
"""
Open = Callable[[Path, ExitStack], list[int]]


def pipes(folder: Path, stack: ExitStack) -> list[int]:
    (taken, given), (out, into) = os.pipe(), os.pipe()
    stack.callback(os.close, out)
    os.write(given, "grün\r\nblau".encode())
    os.close(given)
    return [taken, into, os.dup(into)]


def files(folder: Path, stack: ExitStack) -> list[int]:
    (folder / "read").write_text("abc\n")
    taken = os.open(folder / "read", os.O_RDONLY)
    os.lseek(taken, 1, os.SEEK_SET)
    written = [os.open(folder / name, os.O_RDWR | os.O_CREAT | os.O_APPEND) for name in "oe"]
    for one in written:
        os.write(one, b"before\n")
    return [taken, *written]


def terminal(folder: Path, stack: ExitStack) -> list[int]:
    ours, theirs = pty.openpty()
    stack.callback(os.close, ours)
    return [theirs, os.dup(theirs), os.dup(theirs)]


def closed(folder: Path, stack: ExitStack) -> list[int]:
    return [-1, -1, os.open(os.devnull, os.O_WRONLY)]


def asked(program: list[str], descriptors: list[int], environment: dict[str, str]) -> dict[str, Any]:
    """Returns what the probe tells, from a process with these standard descriptors."""
    out, into = os.pipe()
    passed = [into, *(here for here in descriptors if here >= 0)]

    def redirect() -> None:
        for number, here in enumerate(descriptors):
            if here >= 0:
                os.dup2(here, number)
            else:
                os.close(number)

    subprocess.run(program, pass_fds=passed, env=environment | {"TELL": str(into)}, check=True, preexec_fn=redirect)
    os.close(into)
    told = os.read(out, 1 << 16)
    os.close(out)
    found = json.loads(told)
    assert isinstance(found, dict)
    return found


def by_new(options: list[str], descriptors: list[int], environment: dict[str, str]) -> dict[str, Any]:
    return asked([sys.executable, *options, "-c", PROBE], descriptors, environment)


def by_warm(options: list[str], descriptors: list[int], environment: dict[str, str], log: Path) -> dict[str, Any]:
    """Returns what it tells in an interpreter whose own streams are an unbuffered log and /dev/null."""
    out, into = os.pipe()
    told = json.dumps([[*options, "-c", PROBE], environment | {"TELL": str(into)}, descriptors])
    with log.open("wb") as own:
        subprocess.run(
            [sys.executable, "-u", "-c", WARM.replace("ROOT", repr(str(ROOT))), told],
            stdin=subprocess.DEVNULL,
            stdout=own,
            pass_fds=[into, *(here for here in descriptors if here >= 0)],
            check=True,
        )
    os.close(into)
    found = json.loads(os.read(out, 1 << 16))
    os.close(out)
    assert isinstance(found, dict)
    return found


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


@pytest.mark.parametrize("opened", [pipes, files, terminal, closed])
@pytest.mark.parametrize(
    ("options", "variables"),
    [
        ([], {}),
        (["-u"], {}),
        (["-uB"], {"LC_ALL": "C"}),
        ([], {"PYTHONUNBUFFERED": "1", "LANG": "C"}),
        ([], {"PYTHONIOENCODING": "latin-1"}),
        ([], {"PYTHONIOENCODING": ":replace"}),
        ([], {"PYTHONIOENCODING": "utf-16:ignore", "LANG": "C.UTF-8"}),
        (["-E"], {"PYTHONIOENCODING": "latin-1", "PYTHONUNBUFFERED": "1"}),
        (["-X", "utf8"], {"LC_ALL": "C"}),
        (["-Xutf8=0"], {"LC_ALL": "C"}),
        ([], {"PYTHONUTF8": "0", "LANG": "C"}),
        ([], {"PYTHONUTF8": "1"}),
    ],
    ids=lambda given: " ".join(given) if isinstance(given, list) else ",".join(f"{n}={v}" for n, v in given.items()),
)
def test_streams_are_those_of_a_new_interpreter(
    opened: Open, options: list[str], variables: dict[str, str], tmp_path: Path, stack: ExitStack
) -> None:
    environment = {"PATH": os.defpath, **variables}
    found = []
    for ask in (by_new, lambda *given: by_warm(*given, tmp_path / "log")):
        descriptors = opened(tmp_path, stack)
        try:
            found.append(ask(options, descriptors, environment))
        finally:
            for here in descriptors:
                if here >= 0:
                    os.close(here)
    assert found[1] == found[0]
    if opened is pipes:
        assert not found[1]["stdout"]["can"][0], "nobody can seek in a pipe"


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["-u", "x.py", "-E"], Program(ProgramKind.FILE, "x.py", ("-E",), InterpreterOptions(unbuffered=True))),
        (["-um", "a.b", "1"], Program(ProgramKind.MODULE, "a.b", ("1",), InterpreterOptions(unbuffered=True))),
        (["-ma.b"], Program(ProgramKind.MODULE, "a.b", ())),
        (["-Bcprint(1)", "2"], Program(ProgramKind.SOURCE, "print(1)", ("2",))),
        (
            ["-IX", "utf8=0", "-Wx", "-W", "y", "x"],
            Program(ProgramKind.FILE, "x", (), InterpreterOptions(False, True, False)),
        ),
        (["-Xdev", "x"], Program(ProgramKind.FILE, "x", ())),
        (["-"], None),
        (["-i", "x.py"], None),
        (["--version"], None),
        (["-c"], None),
        ([], None),
    ],
)
def test_options_of_the_interpreter(arguments: list[str], expected: Program | None) -> None:
    assert parse(arguments) == expected
