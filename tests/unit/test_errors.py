"""Exit codes: one enum, which --help and the documents repeat; each error prints itself once and returns its code."""

from __future__ import annotations

import errno
import re
from pathlib import Path

import pytest

from phantora_async import cli, errors
from phantora_async.commands import report
from phantora_async.errors import (
    Deadlock,
    ExitCode,
    InternalError,
    Interrupted,
    Mismatch,
    NotWritten,
    PhantoraError,
    ProtocolError,
    RankDied,
    RunFailure,
    Side,
    Stalled,
    UsageError,
    exit_codes_help,
)

ROOT = Path(__file__).parents[2]


def test_the_exit_codes_of_a_rank_that_emulation_ends_are_the_contract_s() -> None:
    definition = (ROOT / "emu" / "contract" / "records.def").read_text()
    defined = dict(re.findall(r"ENUM\(EXIT, (\w+), (\d+)\)", definition))
    assert defined == {"INTERNAL": "70", "DISCONNECTED": "76"}
    assert {name: str(ExitCode[name].value) for name in defined} == defined


def test_endings_lists_the_exit_codes() -> None:
    table = (ROOT / "docs" / "endings.md").read_text().partition("## Exit codes")[2].partition("##")[0]
    rows = re.findall(r"^\| (\d+) \| (.+) \|$", table, re.MULTILINE)
    assert rows == [(str(code.value), code.meaning) for code in ExitCode]


def test_help_lists_the_exit_codes() -> None:
    for code in ExitCode:
        assert f"  {code.value:<5} {code.meaning}" in exit_codes_help()


@pytest.mark.parametrize(
    ("error", "exit_code"),
    [
        (UsageError("m"), 2),
        (errors.EnvironmentUnusable("m"), 69),
        (InternalError("m"), 70),
        (ProtocolError(3, "m"), 70),
        (NotWritten("m"), 74),
        (Mismatch("m"), 75),
        (Deadlock("m"), 75),
        (Stalled("m"), 75),
        (Interrupted("m"), 130),
        (RankDied(3, "m", 7), 7),
    ],
)
def test_each_error_has_its_exit_code(
    error: PhantoraError, exit_code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fails(given: object) -> int:
        raise error

    error.details, error.hint = "  a detail", "a hint"
    monkeypatch.setattr(report, "run", fails)
    assert cli.run(["report", "x"]) == exit_code
    assert capsys.readouterr().err == f"error: {error.message}\n  a detail\nhint: a hint\n"


def test_a_full_disk_needs_room() -> None:
    assert NotWritten("cannot write r.json: Permission denied", "a hint").hint == "a hint"
    full = "cannot write r.json: No space left on device"
    assert NotWritten(full).hint == "make room there, or name a file on another disk"
    assert NotWritten(full, "a hint").hint == "make room there, or name a file on another disk; a hint"


@pytest.mark.parametrize(
    ("error", "exit_code", "message"),
    [
        (KeyboardInterrupt(), 130, "error: interrupted\n"),
        (OSError(errno.ENOSPC, "No space left on device", "r.json"), 74, "error: No space left on device: r.json\n"),
        (ZeroDivisionError("a bug"), 70, "error: internal error: ZeroDivisionError('a bug')\nTraceback "),
    ],
)
def test_other_exceptions_become_errors(
    error: BaseException,
    exit_code: int,
    message: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def fails(given: object) -> int:
        raise error

    monkeypatch.setattr(report, "run", fails)
    assert cli.run(["report", "x"]) == exit_code
    assert capsys.readouterr().err.startswith(message)


def test_a_failure_prints_both_sides() -> None:
    failure = RunFailure("differ", sides=(Side("all_reduce", (0, 1), (5, 5)), Side("broadcast", (2,), (0,))))
    assert str(failure) == "differ\n  ranks 0, 1: all_reduce\n  ranks 2: broadcast"
