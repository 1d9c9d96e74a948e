"""The book of truth: which jobs were measured on which GPU, how each is run in emulation, and which cannot be.

rows = "../../laboratory/rows/accuracy.jsonl"      # what was simulated, a line a job
page = "../../docs/accuracy.md"              # with the places <!-- validate: NAME --> that are filled
details = "../../docs/data/accuracy-rows.md" # every job

[[truth]]                                    # what was measured on GPUs of one kind
gpu = "h200"
files = ["train-h200.jsonl"]
options = "--cluster h200.toml"              # of `phantora-async run`; names of files are relative to the book

[[family]]
name = "Llama"
gpu = "h200"
script = "train_jobs.py"
fitted = true                                # constants of the models were fitted to traces of some of these jobs
jobs = ["llama1b_1gpu_b4_s2048"]

[[not_run]]                                  # every measured job is in a family or here
gpu = "h200"
why = "its script was not kept"
jobs = ["lstm"]

[[off]]                                      # what is known of jobs that are off
jobs = ["h_gpt2_b2"]
cause = "..."
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from formats.toml import FileTable, read_toml
from phantora_async.errors import UsageError
from phantora_async.validation import truth
from phantora_async.validation.emulation import JobCommand
from phantora_async.validation.truth import JobTruth

HINT = "phantora_async/validation/book.py shows what a book holds"
ARGUMENTS = "--jobs {job} --steps {steps} --warm {warm}"


@dataclass(frozen=True, slots=True)
class Family:
    name: str
    gpu: str
    fitted: bool
    """True if constants of the models were fitted to measurements of some of its jobs."""
    command: JobCommand
    jobs: tuple[JobTruth, ...]


@dataclass(frozen=True, slots=True)
class NotRun:
    gpu: str
    why: str
    jobs: tuple[JobTruth, ...]


@dataclass(frozen=True, slots=True)
class Book:
    path: Path
    rows: Path
    page: Path
    details: Path
    families: tuple[Family, ...]
    not_run: tuple[NotRun, ...]
    causes: dict[str, str]
    """The causes of errors that the book names, by job."""

    def jobs(self) -> Iterable[tuple[Family, JobTruth]]:
        for family in self.families:
            for job in family.jobs:
                yield family, job


def read(path: Path) -> Book:
    """Reads the book. Raises UsageError for what is malformed, for a job that was not measured, and for one that is
    left out.
    """

    def fault(message: str) -> UsageError:
        return UsageError(message, HINT)

    source, values = read_toml(path, fault)
    fields, folder = FileTable(values, "", (source,), fault), path.absolute().parent
    measured: dict[str, dict[str, list[JobTruth]]] = {}
    options: dict[str, tuple[str, ...]] = {}
    for one in fields.tables("truth"):
        gpu = one.text("gpu")
        jobs = truth.load([folder / name for name in one.texts("files")]).jobs
        measured[gpu] = {}
        for job in jobs:
            measured[gpu].setdefault(job.job, []).append(job)
        options[gpu] = tuple(_word(folder, word) for word in shlex.split(one.text("options")))
    # Each measured job must be in one family or be listed as not run, so that none is left out unnoticed.
    left = {(gpu, name) for gpu, by_name in measured.items() for name in by_name}

    def taken(table: FileTable, gpu: str) -> tuple[JobTruth, ...]:
        if gpu not in measured:
            raise table.error("gpu", f"no [[truth]] of {gpu}")
        found: list[JobTruth] = []
        for name in table.texts("jobs"):
            if (gpu, name) not in left:
                known = name in measured[gpu]
                raise table.error("jobs", f"{name}: {'in two places' if known else f'not measured on {gpu}'}")
            left.remove((gpu, name))
            found += measured[gpu][name]
        return tuple(found)

    steps, warm = fields.integer("steps", 4, least=1), fields.integer("warm", 2)
    families = []
    for one in fields.tables("family"):
        gpu = one.text("gpu")
        jobs_of = taken(one, gpu)
        command = JobCommand(
            folder / one.text("script"),
            one.text("arguments", ARGUMENTS),
            steps,
            warm,
            (*options[gpu], *shlex.split(one.text("options", " "))),
        )
        families.append(Family(one.text("name"), gpu, one.flag("fitted"), command, jobs_of))
    not_run = []
    for one in fields.tables("not_run"):
        gpu = one.text("gpu")
        not_run.append(NotRun(gpu, one.text("why"), taken(one, gpu)))
    causes = {job: one.text("cause") for one in fields.tables("off") for job in one.texts("jobs")}
    rows, page, details = [(folder / fields.text(key)).resolve() for key in ("rows", "page", "details")]
    fields.end()
    if left:
        names = ", ".join(sorted(f"{name} ({gpu})" for gpu, name in left))
        raise fault(f"{path}: measured, and in no [[family]] or [[not_run]]: {names}")
    return Book(path, rows, page, details, tuple(families), tuple(not_run), causes)


def _word(folder: Path, word: str) -> str:
    """An option; a file beside the book by its whole name."""
    return str(folder / word) if word.endswith(".toml") else word
