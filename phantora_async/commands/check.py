"""Run the jobs of a file and say whether each keeps within its budget of memory, time and change since a baseline.

The exit code is 0 if all do and 1 if one does not.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from formats.files import try_to_write, write_whole
from phantora_async.errors import NotWritten, UsageError
from phantora_async.wording import short

if TYPE_CHECKING:
    from phantora_async.gate.checking import Judged
    from phantora_async.gate.job_file import Job

MOST_PARALLEL = 1024
"""Runs at a time, each of which has processes for its ranks."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = "phantora-async check FILE [--job NAME ...] [--update] [--junit FILE] [--markdown FILE] [--json]"
    parser.add_argument("file", type=Path, metavar="FILE", help="jobs and their budgets, in TOML; see docs/check.md")
    parser.add_argument("--job", action="append", default=[], metavar="NAME", help="run this job only; may be repeated")
    parser.add_argument(
        "--baseline", type=Path, metavar="FILE", help="figures to compare with (default: FILE.baseline.json)"
    )
    parser.add_argument(
        "--update", action="store_true", help="store the figures of these runs as the new baseline; no change is judged"
    )
    parser.add_argument("--parallel", type=int, default=1, metavar="N", help="jobs at a time (default: %(default)s)")
    parser.add_argument("--run-dir", type=Path, metavar="DIR", help="directory for the jobs' run directories")
    parser.add_argument("--junit", type=Path, metavar="FILE", help="write JUnit XML")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="write a table in Markdown")
    parser.add_argument("--json", action="store_true", help="print JSON in place of text")


def run(given: argparse.Namespace) -> int:
    from phantora_async.api import running
    from phantora_async.gate import baseline, forms, job_file
    from phantora_async.gate.checking import check

    jobs = _chosen(job_file.read(given.file), given.job, given.file)
    if not 1 <= given.parallel <= MOST_PARALLEL:
        raise UsageError(f"--parallel {given.parallel}: expected 1 to {MOST_PARALLEL:,}")
    stored = given.baseline or baseline.path_beside(given.file)
    before = baseline.read(stored)
    if given.update:
        jobs = [job.without_rules() for job in jobs]
    _check_baseline(jobs, before, stored)
    job_file.check_options(jobs, given.file)
    for path in filter(None, (given.junit, given.markdown, stored if given.update else None)):
        _try_to_write(path)
    folder = given.run_dir or Path("phantora-runs") / f"{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}-check"
    _make(folder)
    width = max(len(job.name) for job in jobs)
    judged: list[Judged] = []
    for one in check(jobs, before, folder.absolute(), running.run, given.parallel):
        judged.append(one)
        print(forms.line(one, width), file=sys.stderr if given.json else sys.stdout, flush=True)
    if given.update:
        baseline.write(stored, before | {one.job.name: dict(one.figures) for one in judged if one.figures})
    _write(given.junit, forms.as_junit(judged, given.file.name))
    _write(given.markdown, forms.as_markdown(judged))
    if given.json:
        print(forms.as_json(judged), end="")
    else:
        for text in (*forms.report_lines(judged), forms.summary(judged)):
            print(text)
        if given.update:
            print(f"baseline: {short(stored)}")
    return 0 if all(one.good for one in judged) else 1


def _chosen(jobs: list[Job], names: Sequence[str], path: Path) -> list[Job]:
    known = [job.name for job in jobs]
    if unknown := [name for name in names if name not in known]:
        raise UsageError(f"--job {unknown[0]}: {path} has no such job", f"its jobs: {', '.join(known)}")
    return [job for job in jobs if not names or job.name in names]


def _check_baseline(jobs: Sequence[Job], before: dict[str, dict[str, float]], path: Path) -> None:
    missing = [job.name for job in jobs if job.rules.rules and job.name not in before]
    if missing:
        raise UsageError(
            f"{short(path)} has no figures of job {missing[0]}, whose fail_if compares with them",
            "--update stores those of this version",
        )


def _make(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"{short(folder)}: {error.strerror}") from None


def _try_to_write(path: Path) -> None:
    """Before anything starts. Raises NotWritten."""
    try:
        try_to_write(path)
    except OSError as error:
        raise NotWritten(f"cannot write {short(path)}: {error.strerror}") from None


def _write(path: Path | None, text: str) -> None:
    if path is None:
        return
    try:
        write_whole(path, text.encode())
    except OSError as error:
        raise NotWritten(f"cannot write {short(path)}: {error.strerror}") from None
