"""Runs one job in emulation, in a process of its own, and reads what its script printed and what the report says."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from phantora_async.child_process import child, interrupt_run
from phantora_async.validation.truth import JobTruth

RATE = re.compile(r"\btps: *([\d,]+)")
"""Matches the tokens per second and GPU in torchtitan's log lines."""
RATE_WARM_UP = 4
"""The first log lines of a rate, which are left out."""


FIGURES = ("free_running_step_s", "max_alloc", "max_reserved")
"""The fields of the RESULT line that must be numbers."""


@dataclass(frozen=True, slots=True)
class Emulated:
    """The results of an emulated job. ``failure`` is empty if it ended well; a figure that the job did not print is
    None.
    """

    speed: float | None
    max_alloc: float | None
    max_reserved: float | None
    report: dict[str, Any]
    wall_s: float
    failure: str
    torch: str = ""
    """The version of torch that the script named."""


@dataclass(frozen=True, slots=True)
class JobCommand:
    """The command that starts a job of the truth file."""

    script: Path
    arguments: str
    """The script's arguments, with ``{job}``, ``{steps}``, ``{warm}`` and ``{world}`` to be replaced."""
    steps: int
    warm: int
    run_options: tuple[str, ...]

    def line(self, truth: JobTruth, run_dir: Path) -> list[str]:
        words = {"job": truth.job, "steps": self.steps, "warm": self.warm, "world": truth.world}
        given = [word.format(**words) for word in self.arguments.split()]
        run = [sys.executable, "-m", "phantora_async", "run", "-n", str(truth.world), "--run-dir", str(run_dir)]
        return [*run, "--no-progress", *self.run_options, str(self.script), *given]


@dataclass(frozen=True, slots=True)
class Ended:
    """A run that has ended: what it printed, its report (empty if it wrote none) and how long it took."""

    output: str
    report: dict[str, Any]
    wall_s: float
    failure: str
    """Its error, or its last line, if it did not end well; else empty."""


def run_to_end(command: Sequence[str], run_dir: Path) -> Ended:
    """Runs `phantora-async run` in a process of its own. It never raises for a run that fails."""
    started = time.monotonic()
    with child(
        command,
        interrupt_run,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        errors="replace",
        start_new_session=True,
    ) as process:
        out, err = process.communicate()
    wall_s, failure = time.monotonic() - started, ""
    if process.returncode:
        lines = [line for line in (err or out).splitlines() if line.strip()]
        failure = next((line for line in lines if line.startswith("error:")), lines[-1] if lines else "")
        failure = failure or f"exit code {process.returncode}"
    return Ended(out, report_of(run_dir / "report.json"), wall_s, failure)


def emulate(command: JobCommand, truth: JobTruth) -> Emulated:
    """Emulates the job. It never raises for a job that fails: its last line of output is the row's ``failure``."""
    with tempfile.TemporaryDirectory(prefix="phantora-validate-") as folder:
        run_dir = Path(folder) / "run"
        ended = run_to_end(command.line(truth, run_dir), run_dir)
    if ended.failure:
        return Emulated(None, None, None, ended.report, ended.wall_s, ended.failure)
    result = _result(ended.output, truth.job)
    speed = _rate(ended.output) if truth.speed_is_rate else result.get("free_running_step_s")
    failure = "" if speed else "the script printed no RESULT line of this job"
    version = result.get("torch")
    return Emulated(
        speed,
        result.get("max_alloc"),
        result.get("max_reserved"),
        ended.report,
        ended.wall_s,
        failure,
        version if isinstance(version, str) else "",
    )


def report_of(path: Path) -> dict[str, Any]:
    """Reads a run's report; empty if it wrote none."""
    try:
        document = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return {}
    return document if isinstance(document, dict) else {}


def _result(output: str, job: str) -> dict[str, Any]:
    """The object in the job's ``RESULT {json}`` line."""
    for line in output.splitlines():
        if line.startswith("RESULT "):
            try:
                result = json.loads(line.removeprefix("RESULT "))
            except (ValueError, RecursionError):
                continue
            if isinstance(result, dict) and result.get("job", job) == job:
                return {key: value for key, value in result.items() if key not in FIGURES or _is_figure(value)}
    return {}


def _is_figure(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < 2**63


def _rate(output: str) -> float | None:
    rates: Sequence[float] = [float(found.replace(",", "")) for found in RATE.findall(output)]
    return median(rates[RATE_WARM_UP:]) if len(rates) > RATE_WARM_UP else None
