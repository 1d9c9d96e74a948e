"""A file of jobs with their budgets, in TOML:

    [defaults]                       # what jobs do not say themselves
    cluster = "dgx-h100"
    fail_if = "step > +3%, memory > +1%"   # against the baseline

    [job.llama-8b]
    script = "train.py"              # or module = "my.train", or launcher = "torchrun --nproc-per-node 8 train.py"
    arguments = ["--layers", "32"]
    world_size = 8                   # the options of `phantora-async run`, named as in the Python API
    max_memory = "76GiB"             # also max_allocated
    max_step_time = "450ms"
    min_mfu = "40%"
    known = true                     # do not run it again if nothing changed
    fold = "none"                    # each rank has a process; without it, `--fold auto` where it leaves processes out

Paths are relative to the file.
"""

from __future__ import annotations

import dataclasses
import os
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from formats.nearest import meant_or_known
from formats.toml import FileTable, read_toml
from phantora_async.budget import OF_TIME, Limits, Rules
from phantora_async.budget import OPTIONS as BUDGETS
from phantora_async.config import AUTO, folds_by_itself, resolve, servers_of
from phantora_async.errors import UsageError
from phantora_async.options import OPTIONS, Kind, RunOptions
from profiles import ProfileError, load_machine

UNFOLDED = "none"
"""The value of `fold` that gives each rank a process."""
OWN = (
    "run_dir",
    "again",
    "report",
    "record",
    "trace",
    "show_ranks",
    "progress",
    "ui",
    "listen",
    "on",
    "ray_env",
    "machines",
    "token_file",
)
"""Options that `check` sets itself, or that cannot be combined with it."""
STEPS_FOR_MEMORY = 2
"""The steps that a limit of memory needs. Memory is at its peak in the second step at the latest: then the optimizer's
state exists, too.
"""
STEPS_FOR_TIME = 5
"""The steps that a limit of time needs. The first one is not timed, two are left out as warm-up, and the median of the
others counts.
"""


@dataclass(frozen=True, slots=True)
class Job:
    name: str
    options: RunOptions
    limits: Limits
    rules: Rules
    why_steps: str
    """Says why so many steps are run; empty if the file says how many."""
    folded: bool = False
    """True if `check` folds the job by itself, and runs it with all processes if it cannot be folded."""

    def unfolded(self) -> Job:
        return dataclasses.replace(self, options=dataclasses.replace(self.options, fold=None), folded=False)

    def without_rules(self) -> Job:
        """The job without rules, so that its limits alone decide."""
        return dataclasses.replace(self, rules=Rules(()))


def read(path: Path) -> list[Job]:
    """Reads the jobs in the file's order. Raises UsageError for the first thing that is wrong with any of them."""

    def fault(message: str) -> UsageError:
        return UsageError(message, "docs/check.md has an example")

    source, values = read_toml(path, fault)
    fields = FileTable(values, "", (source,), fault)
    defaults = fields.table("defaults", optional=True)
    jobs = fields.table("job")
    names, shared = jobs.keys(), defaults.values()
    found = [_job(path.absolute().parent, name, jobs.table(name), shared, defaults) for name in names]
    fields.end()
    if not found:
        raise UsageError(f"{path}: no [job.NAME] tables", "docs/check.md has an example")
    return found


def _job(folder: Path, name: str, fields: FileTable, shared: Mapping[str, Any], defaults: FileTable) -> Job:
    if not re.fullmatch(r"[\w.-]{1,80}", name):
        raise fields.wrong(fields.name, "a job's name has letters, digits and . _ - only")
    own = fields.values()
    given = {**shared, **own}
    for key in given:
        if key not in OPTIONS and key not in ("script", "arguments", "fail_if"):
            raise (fields if key in own else defaults).error(key, f"unknown key; {_likely(key)}")
        if key in OWN:
            raise (fields if key in own else defaults).error(key, "not for check: it has its own")

    def wrong(key: str, fault: str) -> Exception:
        return (fields if key in own else defaults).error(key, fault)

    for key in BUDGETS:
        if isinstance(given.get(key), float | int) and not isinstance(given[key], bool):
            given[key] = f"{given[key]:.9g}"  # min_mfu = 0.4
    if not isinstance(given.get("fail_if", ""), str):
        raise wrong("fail_if", 'expected a text such as "step > +3%"')
    try:
        rules = Rules.of(given.get("fail_if", ""))
        options, why = _options(folder, fields, given, rules.names)
        limits = Limits.of({key: getattr(options, key) for key in BUDGETS})
    except UsageError as error:
        key, _, fault = error.message.partition(": ")
        raise wrong(key if key in given else "fail_if", fault if key in given else error.text) from None
    unlimited = dataclasses.replace(options, max_memory=None, max_allocated=None, max_step_time=None, min_mfu=None)
    job = Job(name, unlimited, limits, rules, why)
    return job if "fold" in given else _folded(job)


def _folded(job: Job) -> Job:
    """The job with `--fold auto` if that leaves out processes: the simulated part of the report is the same."""
    try:
        servers = servers_of(job.options, load_machine(job.options.cluster, job.options.gpu).cluster)
        if not folds_by_itself(job.options, servers):
            return job
    except (UsageError, ProfileError):
        return job  # `check_options` says what is wrong, if it is not the mesh
    return dataclasses.replace(job, options=dataclasses.replace(job.options, fold=AUTO), folded=True)


def _likely(key: str) -> str:
    return meant_or_known(key, ["script", "arguments", "fail_if", *(name for name in OPTIONS if name not in OWN)])


def _options(folder: Path, fields: FileTable, given: Mapping[str, Any], compared: set[str]) -> tuple[RunOptions, str]:
    """Reads the options of a run. `compared`: the figures that are compared with the baseline."""
    script, arguments, named = program_of(folder, fields, given)
    if named.get("fold") == UNFOLDED:
        del named["fold"]
    why = ""
    if "steps" not in named and "until" not in named:
        asked = {*(figure for option, figure in BUDGETS.items() if option in named), *compared}
        of_time = bool(asked.intersection(OF_TIME))
        named["steps"] = STEPS_FOR_TIME if of_time else STEPS_FOR_MEMORY
        why = "steps for a median" if of_time else "steps for the peak of memory"
    return RunOptions(script, arguments, show_ranks="none", progress=False, **named).checked(), why


def program_of(folder: Path, fields: FileTable, given: Mapping[str, Any]) -> tuple[str, Sequence[str], dict[str, Any]]:
    """Reads the script, its arguments, and further options of a run. Raises the error of `fields`."""
    named = {key: value for key, value in given.items() if key in OPTIONS}
    script, arguments = given.get("script"), given.get("arguments", [])
    kinds = [key for key in ("script", "module", "launcher") if key in given]
    if len(kinds) != 1 or not isinstance(given[kinds[0]], str):
        raise fields.error("script", 'expected script = "PATH", module = "NAME" or launcher = "COMMAND", one of them')
    if kinds == ["module"]:
        script, named["module"] = given["module"], True
    elif kinds == ["launcher"]:
        script, *words = shlex.split(given["launcher"]) or [""]
        arguments, named["launcher"] = [*words, *arguments], True
    else:
        script = _beside(folder, given["script"])
    for name, value in named.items():
        if OPTIONS[name].kind is Kind.PATH and isinstance(value, str):
            named[name] = _beside(folder, value)
    return str(script), arguments, named


def _beside(folder: Path, text: str) -> str:
    """The path relative to the file's folder, if it exists there; names of descriptions are returned unchanged."""
    beside = folder / text
    return str(beside) if beside.exists() else text


def check_options(jobs: list[Job], path: Path) -> None:
    """Raises UsageError for the first job that could not start, before any does."""
    with TemporaryDirectory(prefix="phantora-check-") as folder:
        for number, job in enumerate(jobs):
            try:
                resolve(dataclasses.replace(job.options, run_dir=os.path.join(folder, str(number))))
            except UsageError as error:
                raise UsageError(f"{path}: job {job.name}: {error.message}", error.hint, error.details) from None
