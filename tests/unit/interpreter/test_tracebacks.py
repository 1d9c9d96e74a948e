"""Tracebacks of a script: frames of ours are left out, but those of an error of ours."""

from __future__ import annotations

import linecache
import os
import traceback
from collections.abc import Callable
from typing import Any

import pytest

from emu.interpreter.code_owner import OUR_FOLDER
from emu.interpreter.tracebacks import without_ours

OURS = os.path.join(OUR_FOLDER, "clock", "stands_in.py")
THEIRS = "/x/train.py"
WRAPPED = """
def call(*arguments):
    return _real_wait(*arguments)

def steps(self, value):
    return self._kernel(value)

def refuse():
    raise ValueError("no")

def refuse_otherwise():
    try:
        refuse()
    except ValueError:
        raise KeyError("no")

def wrong():
    return {}["key"]

def unsure():
    assert False
"""


def made(text: str, file: str, names: dict[str, Any]) -> dict[str, Any]:
    linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
    exec(compile(text, file, "exec"), names)
    return names


def functions(error: BaseException) -> list[str]:
    return [frame.name for frame in traceback.extract_tb(without_ours(error).__traceback__)]


def raised_by(text: str, **names: Any) -> BaseException:
    ours = made(WRAPPED, OURS, names)
    theirs = made(f"def step():\n    {text}\n", THEIRS, ours)
    with pytest.raises(Exception) as caught:  # noqa: PT011
        theirs["step"]()
    error = caught.value
    error.__traceback__ = error.__traceback__ and error.__traceback__.tb_next  # without this test's frame
    return error


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("call('a')", ["step"]),  # C++ has raised it
        ("steps(self, 'a')", ["step"]),
        ("refuse()", ["step"]),
        ("refuse_otherwise()", ["step"]),  # the first error has frames of ours alone
        ("wrong()", ["step", "wrong"]),
        ("unsure()", ["step", "unsure"]),
    ],
)
def test_frames_of_ours_are_left_out(text: str, shown: list[str]) -> None:
    kernel: Callable[[str], int] = int
    assert functions(raised_by(text, _real_wait=int, self=type("Op", (), {"_kernel": staticmethod(kernel)}))) == shown


def test_frames_of_ours_between_others_are_left_out_and_those_of_causes_too() -> None:
    names = made("def inner(x):\n    return 1 // x\n", "/x/model.py", {})
    error = raised_by(
        "try:\n        call(0)\n    except ZeroDivisionError as e:\n        raise KeyError from e",
        _real_wait=names["inner"],
    )
    assert functions(error) == ["step"]
    assert error.__cause__ is not None
    assert [frame.name for frame in traceback.extract_tb(error.__cause__.__traceback__)] == ["step", "inner"]
