"""A damaged report: what is wrong, on which line, and what is allowed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from phantora_async.report import ReportError, read, terminal_report

from ..virtual_time.scripted import scripts
from .test_report import document, train


def report() -> dict[str, Any]:
    return document(*(train(script, 5, marked=True) for script in scripts(2)))


def write(folder: Path, content: Any) -> Path:
    path = folder / "report.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content, indent=1))
    return path


def line_of(path: Path, text: str) -> int:
    return next(number for number, line in enumerate(path.read_text().splitlines(), start=1) if text in line)


def test_a_good_report_is_shown(tmp_path: Path) -> None:
    whole = report()
    assert terminal_report(read(write(tmp_path, whole))) == terminal_report(whole)


def test_a_wrong_value_is_named_with_its_line(tmp_path: Path) -> None:
    damaged = report()
    damaged["simulated"]["ranks"][1]["compute_ns"] = "soon"
    path = write(tmp_path, damaged)
    with pytest.raises(ReportError) as caught:
        read(path)
    where = f"{path}:{line_of(path, 'soon')}: simulated.ranks[1].compute_ns: "
    assert str(caught.value) == where + 'expected a whole number that is not negative, found "soon"'


def test_a_missing_field_is_named_with_the_line_of_the_object(tmp_path: Path) -> None:
    damaged = report()
    del damaged["simulated"]["step"]["median_ns"]
    path = write(tmp_path, damaged)
    with pytest.raises(ReportError) as caught:
        read(path)
    where = f"{path}:{line_of(path, chr(34) + 'step' + chr(34))}: "
    assert str(caught.value) == where + "simulated.step.median_ns: missing"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{\n "schema": 1,\n "exit_code": }', "report.json:3: not JSON: Expecting value, column 15"),
        ("[" * 100_000, "too many brackets within each other"),
        ("9" * 5000, "a number has thousands of digits"),
        ('{"schema": 2}', "another version of phantora-async: its schema is 2, this version reads schema 1"),
        ('{"schema": 1}', "report.json:1: exit_code: missing"),
    ],
)
def test_what_is_no_report_is_refused(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(ReportError) as caught:
        read(write(tmp_path, text))
    assert message in str(caught.value)


def test_texts_of_the_script_do_not_reach_the_terminal_as_commands() -> None:
    whole = report()
    whole["simulated"]["gpu"] = "[bold]\x1b[31mred"
    whole["simulated"]["warnings"] = [{"text": "\x1b]0;title\x07 \u202eback \ud800", "ranks": [0], "count": 1}]
    whole["failure"] = {"text": "ValueError: \x1b[2J (train.py:3)"}
    text = terminal_report(whole)
    assert "[bold]\\x1b[31mred" in text
    assert "\\x1b]0;title\\x07 \\u202eback \\ud800" in text
    assert "ValueError: \\x1b[2J" in text
    assert "\x1b" not in text


def test_a_number_without_bounds_is_named(tmp_path: Path) -> None:
    damaged = report()
    damaged["simulated"]["work"]["flops"] = 10**400
    with pytest.raises(ReportError, match=r"work\.flops: expected a number that is not negative, found 1000"):
        read(write(tmp_path, damaged))
