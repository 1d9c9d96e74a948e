"""Runs a whole check in one call, for the command and for `phantora_async.check`."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from formats.files import try_to_write, write_whole
from phantora_async.api import running
from phantora_async.api.run_processes import RunProcesses
from phantora_async.errors import NotWritten, UsageError
from phantora_async.gate import baseline as baselines
from phantora_async.gate import job_file, verdict_formats
from phantora_async.gate.baseline import Baseline, Stored
from phantora_async.gate.checking import Judged, Runner, verdicts
from phantora_async.gate.job_file import Job
from phantora_async.wording import short

MOST_PARALLEL = 1024
"""The most runs at a time; each has processes for its ranks."""
PathText = str | os.PathLike[str]


class Checked:
    """The results of the jobs of a file. ``print(checked)`` shows them as the command line does."""

    def __init__(self, name: str, jobs: Sequence[Judged], stored: Path | None) -> None:
        self.name = name
        self.jobs = jobs
        self._stored = stored

    @property
    def good(self) -> bool:
        """True if each job keeps within its budget."""
        return all(one.good for one in self.jobs)

    def document(self) -> dict[str, Any]:
        return verdict_formats.as_document(self.jobs)

    def write_junit(self, path: PathText) -> None:
        """Writes the results as JUnit XML. Raises NotWritten."""
        _write(Path(path), verdict_formats.as_junit(self.jobs, self.name))

    def write_markdown(self, path: PathText) -> None:
        """Writes the results as Markdown. Raises NotWritten."""
        _write(Path(path), verdict_formats.as_markdown(self.jobs))

    @property
    def closing(self) -> str:
        """The lines that are shown after those of the jobs."""
        lines = [*verdict_formats.report_lines(self.jobs), verdict_formats.summary(self.jobs)]
        if self._stored is None:
            return "\n".join(lines)
        left_out = [one.job.name for one in self.jobs if not one.figures]
        without = f", without {', '.join(left_out)}: no figures" if left_out else ""
        return "\n".join([*lines, f"baseline: {short(self._stored)}{without}"])

    def __str__(self) -> str:
        width = max(len(one.job.name) for one in self.jobs)
        return "\n".join([*(verdict_formats.line(one, width) for one in self.jobs), self.closing])


def check(
    file: PathText,
    *,
    jobs: Sequence[str] = (),
    baseline: PathText | None = None,
    update: bool = False,
    parallel: int = 1,
    run_dir: PathText | None = None,
    again: bool = False,
    told: Callable[[str], None] | None = None,
) -> Checked:
    """Runs the jobs of a file and judges them, as `phantora-async check` does. `jobs`: run only these. `baseline`:
    figures to compare with (default: FILE.baseline.json), which `update` stores anew. `parallel`: jobs at a time.
    `again`: run also those of which nothing changed since they were run last. `told` is called with a line for each
    job. A job that fails or breaks a limit is no error; those of ``phantora_async.errors`` are raised for what is wrong
    with the file, before anything starts.
    """
    path = Path(file)
    if isinstance(jobs, str):
        raise UsageError(f"jobs: expected a list of names, found {jobs!r}")
    chosen = _chosen(job_file.read(path), jobs, path)
    if not isinstance(parallel, int) or not 1 <= parallel <= MOST_PARALLEL:
        raise UsageError(f"--parallel {parallel}: expected 1 to {MOST_PARALLEL:,}")
    stored = Path(baseline) if baseline is not None else baselines.path_beside(path)
    before = _before(stored, update)
    # Rules compare with the stored figures, which are being made: limits alone decide.
    if update:
        chosen = [job.without_rules() for job in chosen]
        check_writable([stored])
    # A job takes minutes: what is wrong with the file, its options or the folder is found before the first one starts.
    _check_baseline(chosen, before, stored)
    job_file.check_options(chosen, path)
    folder = Path(run_dir or Path("phantora-runs") / f"{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}-check")
    _make(folder)
    width = max(len(job.name) for job in chosen)
    judged = []
    with RunProcesses() as shared:
        # One job alone shares nothing.
        run: Runner = running.run
        if len(chosen) > 1:
            run = partial(run, processes=shared)
        for one in verdicts(chosen, before, folder.absolute(), run, parallel, again=again):
            judged.append(one)
            if told is not None:
                told(verdict_formats.line(one, width))
    if update:
        baselines.write(
            stored, before | {one.job.name: Stored(one.figures, one.digest) for one in judged if one.figures}
        )
    return Checked(path.name, judged, stored if update else None)


def check_writable(paths: Iterable[Path]) -> None:
    """Checks before anything starts that these files can be written. Raises NotWritten."""
    for path in paths:
        try:
            try_to_write(path)
        except OSError as error:
            raise NotWritten(f"cannot write {short(path)}: {error.strerror}") from None


def _before(stored: Path, update: bool) -> Baseline:
    """The baseline. One that cannot be read is no obstacle if it is written anew. Raises UsageError."""
    try:
        return baselines.read(stored)
    except UsageError:
        if not update or not stored.is_file():
            raise
        return {}


def _chosen(jobs: list[Job], names: Sequence[str], path: Path) -> list[Job]:
    known = [job.name for job in jobs]
    if unknown := [name for name in names if name not in known]:
        raise UsageError(f"--job {unknown[0]}: {path} has no such job", f"its jobs: {', '.join(known)}")
    return [job for job in jobs if not names or job.name in names]


def _check_baseline(jobs: Sequence[Job], before: Baseline, path: Path) -> None:
    """Refuses a file of which no job has the figures that its rules compare with. A job that is new beside others runs,
    and fails with what it lacks. Raises UsageError.
    """
    ruled = [job.name for job in jobs if job.rules.rules]
    if ruled and not any(name in before for name in ruled):
        raise UsageError(
            f"{short(path)} has no figures of job {ruled[0]}, whose fail_if compares with them",
            "--update stores those of this version, for jobs that run to their end; --job NAME runs others alone",
        )


def _make(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise NotWritten(f"{short(folder)}: {error.strerror}", "name another: --run-dir DIR") from None


def _write(path: Path, text: str) -> None:
    try:
        write_whole(path, text.encode())
    except OSError as error:
        raise NotWritten(f"cannot write {short(path)}: {error.strerror}") from None
