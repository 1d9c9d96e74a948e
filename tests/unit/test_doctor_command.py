"""`phantora-async doctor`: what it says, and its exit code."""

from __future__ import annotations

import json
import resource
from pathlib import Path
from typing import Any

import pytest

from phantora_async import cli
from phantora_async.doctor import interpreter, machine
from phantora_async.errors import ExitCode

NAME = {"name": "torch.x.y", "state": "ok", "detail": "", "seen": []}
RANKS: dict[str, Any] = {
    "python": "3.13.1",
    "executable": "/opt/python",
    "torch": "2.17.0+cu132",
    "cuda": "13.2",
    "compiler": None,
    "packages": {"numpy": "2.4"},
    "private": [
        {"purpose": "a", "use": "u", "lost": "nothing is shared", "files": ["f"], "names": [NAME, NAME]},
        {
            "purpose": "b",
            "use": "u",
            "lost": "sums are slow",
            "files": ["f"],
            "names": [NAME | {"name": "torch.z", "state": "changed", "detail": "it takes (a)"}],
        },
    ],
}


@pytest.fixture(autouse=True)
def _machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interpreter, "why_not_isolated", lambda: "forbidden (user.max_user_namespaces is 0)")
    monkeypatch.setattr(machine, "_built", list)


def doctor(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], ranks: dict[str, Any], *arguments: str
) -> tuple[int, str]:
    monkeypatch.setattr(interpreter, "ask", lambda python: ranks)
    code = cli.run(["doctor", *arguments])
    return code, capsys.readouterr().out


def test_what_is_lost_is_said_and_a_run_can_work(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    code, shown = doctor(monkeypatch, capsys, RANKS)
    assert code == 0
    assert "private names of PyTorch, Triton and Python: 2 of 3 are as expected" in shown
    assert "  changed  torch.z (it takes (a))\n           lost: sums are slow\n" in shown
    assert "nothing is shared" not in shown
    assert "note  isolation          none: forbidden (user.max_user_namespaces is 0)" in shown
    assert "note  C compiler         none" in shown
    assert "a run can work (" in shown.splitlines()[-1]
    assert "without it: nothing is shared" in doctor(monkeypatch, capsys, RANKS, "-v")[1]


def test_transformer_engine_without_its_extension_is_told(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    has = {"transformer_engine": "2.20.2"}
    shown = doctor(monkeypatch, capsys, RANKS | {"packages": has})[1]
    assert "note  Transformer Engine without its PyTorch extension" in shown
    assert "examples/build_transformer_engine.sh" in shown
    shown = doctor(monkeypatch, capsys, RANKS | {"packages": has | {"transformer_engine_torch": "2.20.2"}})[1]
    assert "without its PyTorch extension" not in shown


def test_an_interpreter_that_no_rank_can_use(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    failed = {"failure": "PyTorch is not installed for /opt/python", "hint": "install a CUDA build"}
    code, shown = doctor(monkeypatch, capsys, failed, "--json")
    document = json.loads(shown)
    assert code == ExitCode.ENVIRONMENT
    assert not document["can_run"]
    assert {"name": "ranks", "found": failed["failure"], "state": "fails", "advice": failed["hint"]} in document[
        "checks"
    ]


def test_an_interpreter_that_ends_without_an_answer(tmp_path: Path) -> None:
    broken = tmp_path / "python"
    broken.write_text("#!/bin/sh\necho 'no such library' >&2\nexit 3\n")
    broken.chmod(0o755)
    assert "no such library" in interpreter.ask(broken)["failure"]


def test_limits_are_looked_at_and_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    found = {check.name: check for check in machine.checks(4)}
    assert resource.getrlimit(resource.RLIMIT_NOFILE) == before
    assert found["temporary files"].state == machine.OK
    assert "open files" in found["limits (ulimit)"].found
    monkeypatch.setattr(machine, "LEAST_NBYTES", 1 << 60)
    assert {check.name: check for check in machine.checks(4)}["memory"].state == machine.NOTE
