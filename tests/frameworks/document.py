"""docs/data/frameworks.md: reads its results, and writes it from the jobs and their results."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from .job import Framework, Job, Outcome
from .running import words

PATH = Path(__file__).parents[2] / "docs" / "data" / "frameworks.md"
HEAD = """\
# Frameworks

What was run of training frameworks, at small sizes, on emulated GPUs. [frameworks.md](../frameworks.md) says how rows
are run and when they count as running. Rows marked * run as `pytest -m thorough`; tests that are named run with all
others. Wall times are those of a busy machine with two cores.
"""
COLUMNS = ("feature", "ranks", "result", "versions", "test", "command", "wall time", "date")


@dataclass(frozen=True, slots=True)
class Row:
    """The result of a job's last run, as the document has it."""

    result: str = "not run"
    versions: str = ""
    wall: str = ""
    date: str = ""


def row_of(outcome: Outcome, date: str) -> Row:
    if outcome.faults:
        result = f"fails: {'; '.join(outcome.faults)}"
    elif outcome.step_ns:
        result = f"runs: step {outcome.step_ns / 1e6:.2f} ms, peak {outcome.peak_nbytes / 2**30:.2f} GiB"
    else:
        result = "runs"
    return Row(_cell(result), outcome.versions, f"{outcome.wall_s:.0f} s", date)


def _cell(text: str) -> str:
    return " ".join(text.replace("|", "/").split())


def read(text: str) -> dict[str, Row]:
    """Returns the results by the jobs' names."""
    rows = {}
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.strip().strip("|").split(" | ")]
        if len(cells) == len(COLUMNS) and (found := re.match(r"`([^`]+)`", cells[4])):
            rows[found[1]] = Row(cells[2], cells[3], cells[6], cells[7])
    return rows


def render(jobs: Sequence[Job], rows: Mapping[str, Row]) -> str:
    parts = [HEAD]
    for framework, group in groupby(jobs, lambda job: job.framework):
        parts.append("\n".join(_section(framework, list(group), rows)) + "\n")
    return "\n".join(parts)


def _section(framework: Framework, jobs: Sequence[Job], rows: Mapping[str, Row]) -> Iterable[str]:
    yield f"## {framework.title}"
    yield ""
    if framework.start:
        variables = "".join(f"{name}={value} " for name, value in framework.environment)
        yield f"    {variables}phantora-async run -n RANKS {shlex.join(framework.start)} ARGUMENTS"
        yield ""
    yield f"| {' | '.join(COLUMNS)} |"
    yield "| --- | ---: | --- | --- | --- | --- | ---: | --- |"
    for job in jobs:
        row = rows.get(key(job), Row())
        result = f"fails: {job.fails}" if job.fails else row.result
        own = words(job)[4:] if not framework.start else [*job.options, *job.arguments]
        command = f"`{shlex.join(own)}`" if own and not job.test else ""
        star = " *" if job.small else ""
        cells = (job.feature, str(job.ranks), result, row.versions, f"`{key(job)}`{star}", command, row.wall, row.date)
        yield f"| {' | '.join(cells)} |"


def key(job: Job) -> str:
    return job.test or job.name
