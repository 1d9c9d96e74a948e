"""The line of the exception that ended a rank reaches the coordinator whatever the exception's text is."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from emu.interpreter.hook_library.process import ProcessCalls
from emu.start.program import Program, ProgramKind
from emu.start.script import MOST_WORDS, run


@pytest.mark.parametrize(
    ("message", "words"),
    [("'a\\0b'", "ValueError: a\\x00b"), (f"'x' * {2 * MOST_WORDS}", "ValueError: xxx")],
    ids=["a NUL", "too long"],
)
def test_the_line_is_told(message: str, words: str, tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    script = tmp_path / "train.py"
    script.write_text(f"\nraise ValueError({message})\n")
    monkeypatch.setattr(sys, "argv", [])
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setitem(sys.modules, "__main__", sys.modules["__main__"])
    monkeypatch.chdir(tmp_path)
    end = run(Program(ProgramKind.FILE, str(script), ()))
    calls, told = object.__new__(ProcessCalls), []
    monkeypatch.setattr(calls, "_finish", lambda code, text: told.append((code, text)), raising=False)
    calls.finish(end.code, end.last_words)
    ((code, text),) = told
    assert code == 1
    assert b"\0" not in text
    assert text.decode().startswith(words)
    assert text.decode().endswith(" (train.py:2)")
