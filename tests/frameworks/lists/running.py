"""Runs tests of a list below phantora-async, some together in one run."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from phantora_async.child_process import child, interrupt_run

from .. import assets
from ..running import CHECKOUTS, RANKS_PYTHON, ROOT, SCRIPTS, looked
from . import verdict
from .lists import TestList
from .verdict import Verdict

UNKNOWN = ("values that were not computed", "depend on kernels that are not executed", "scores that are not computed")
"""Parts of the warnings of a report that say that the program has read a value which no kernel computed."""


def absent(tests: TestList) -> str:
    """Returns what the list needs and this machine lacks; empty if nothing."""
    missing, _, _ = looked(("torch", *tests.modules), ())
    if missing:
        return f"needs {', '.join(missing)}"
    if tests.checkout and not folder_of(tests).is_dir():
        return f"needs a clone of {tests.checkout} in PHANTORA_FRAMEWORK_CHECKOUTS"
    return ""


def folder_of(tests: TestList) -> Path:
    if not tests.checkout:
        return SCRIPTS
    return Path(CHECKOUTS, tests.checkout.partition("/")[2], tests.folder).absolute()


def versions(tests: TestList) -> str:
    _, found, _ = looked((), tests.packages)
    named = [f"{name} {version}" for name, version in found.items() if version]
    if tests.checkout:
        ask = ["git", "-C", str(folder_of(tests)), "rev-parse", "--short=9", "HEAD"]
        commit = subprocess.run(ask, check=True, capture_output=True, text=True).stdout.strip()
        named.insert(0, f"{tests.checkout.partition('/')[2]} {commit}")
    return ", ".join(named)


def collected(tests: TestList) -> list[str]:
    """Returns the names of the list's tests, as the framework has them."""
    command = [RANKS_PYTHON, *tests.collect]
    environment = os.environ | {"PYTHONPATH": _path()} | dict(tests.environment)
    done = subprocess.run(command, cwd=folder_of(tests), env=environment, check=True, stdout=subprocess.PIPE, text=True)
    return [line.removeprefix("test: ") for line in done.stdout.splitlines() if line.startswith("test: ")]


def run(tests: TestList, names: Sequence[str], limit_s: int, keep: Path | None = None) -> Iterator[tuple[str, Verdict]]:
    """Runs the tests and returns each one's name and verdict. If a run ends before its last test (a deadlock, a crash
    of the runner), the first test without a verdict is to blame, and those after it get another run.
    """
    remaining = list(names)
    while remaining:
        batch = remaining[: tests.together]
        verdicts = _run(tests, batch, limit_s, keep)
        for name in batch:
            if (found := verdicts.get(name)) is None:
                break
            remaining.pop(0)
            yield name, found


def _run(tests: TestList, batch: Sequence[str], limit_s: int, keep: Path | None) -> dict[str, Verdict]:
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="test-lists-") as folder:
        out = Path(folder, "out")
        out.mkdir()
        exit_code, output, report = _emulated(tests, batch, Path(folder), limit_s)
        if keep is not None:
            keep.mkdir(parents=True, exist_ok=True)
            (keep / f"{tests.name}.{verdict.parts(batch[0])[1].replace('/', '-')}.txt").write_text(output)
        seconds = time.monotonic() - began
        unknown = any(part in warning["text"] for warning in _warnings(report) for part in UNKNOWN)
        if not tests.junit:
            if exit_code == 0:
                return {batch[0]: Verdict(verdict.PASSES, "", "", seconds)}
            if exit_code is None:
                return {batch[0]: Verdict(verdict.FAILS, verdict.OTHER, _not_over(limit_s), seconds)}
            return {batch[0]: verdict.failed(output, seconds, unknown_read=unknown)}
        if written := sorted(out.glob("junit*.xml")):
            return verdict.from_junit(written, batch, unknown_read=unknown)
        logs = [log.read_text(errors="replace") for log in sorted(out.glob("*.log"))]
        verdicts = verdict.from_ranks(logs or [output])
        first = next((name for name in batch if name not in verdicts), None)
        if first is not None:  # the run was ended in this test
            said = verdict.ended(output) or f"the run ended with {exit_code}"
            said = _not_over(limit_s) if exit_code is None else said
            verdicts[first] = Verdict(verdict.FAILS, verdict.OTHER, said, seconds)
        return verdicts


def _not_over(limit_s: int) -> str:
    return f"not over after {limit_s} s"


def _warnings(report: dict[str, Any]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = report.get("simulated", {}).get("warnings", [])
    return found


def _emulated(
    tests: TestList, batch: Sequence[str], folder: Path, limit_s: int
) -> tuple[int | None, str, dict[str, Any]]:
    """Returns the run's exit code, None if the limit ended it; what it printed; and its report."""
    words = [word for part in tests.command for word in (batch if part == "{tests}" else [part])]
    words = [word.replace("{out}", str(folder / "out")) for word in words]
    report = folder / "report.json"
    command = [sys.executable, "-m", "phantora_async", "run", "-n", str(tests.ranks), "--report", str(report)]
    command += ["--python", RANKS_PYTHON, "--run-dir", str(folder / "run"), "--no-progress", "--launcher", "--", *words]
    exit_code: int | None = None
    # It has a session of its own, so that an interrupt of this program ends it once, and it leaves no rank behind.
    with child(
        command,
        interrupt_run,
        start_new_session=True,
        cwd=folder_of(tests),
        env=os.environ | {"COLUMNS": "160", "PYTHONPATH": _path()} | dict(tests.environment),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    ) as process:
        try:
            output, _ = process.communicate(timeout=limit_s)
            exit_code = process.returncode
        except subprocess.TimeoutExpired:
            process.terminate()  # writes its report
            output, _ = process.communicate()
    return exit_code, output, json.loads(report.read_text()) if report.exists() else {}


def _path() -> str:
    return os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH", "")]))


def prepare(tests: TestList) -> None:
    """Writes what the tests would download, if the clone lacks it: the text that torchtitan's debug configurations read
    (a file of 4 MB), the models and data sets of TRL's tests (below the names that they have on the hub).
    """
    text = folder_of(tests) / "tests" / "assets" / "c4_test" / "data.json"
    if tests.checkout and text.parent.is_dir() and not text.exists():
        text.write_text(assets.c4())
    hub = folder_of(tests) / "trl-internal-testing"
    if tests.checkout == "huggingface/trl" and not hub.exists():
        assets.write_trl(hub)
