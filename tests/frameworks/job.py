"""The types of a framework's job, and of what must be seen after it ran."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Framework:
    """`title` heads its rows. `packages`: distributions whose versions a row states, the framework's own first.

    `start` is what `phantora-async run -n N` starts, with the arguments that all jobs share: a script in `scripts/`, or
    `-m` and a module. If `checkout` is set, the script is in a clone of that repository, and so is the job's working
    folder; `folder` is the clone's, where it is not the repository's name. `environment`: variables that it asks for.
    `python`: the oldest Python that it runs on.
    """

    title: str
    packages: tuple[str, ...]
    modules: tuple[str, ...]
    start: tuple[str, ...]
    checkout: str = ""
    commit: str = ""
    folder: str = ""
    python: tuple[int, int] = (3, 11)
    environment: tuple[tuple[str, str], ...] = ()


UPDATED = ("reads values that were not computed", "bytes are values that were not computed")
"""Warnings that a job expects which copies parameters or gradients to the host, or saves them: what an optimizer or a
backward pass makes of them is not computed (docs/limitations.md).
"""
CHOSEN = (r"reads a choice \(argmax, topk, multinomial \.\.\.\) among scores that are not computed",)
"""Warnings of a job that counts how many predictions are right."""
DECIDED = ("reads int64 values that depend on kernels that are not executed",)
"""Warnings of a job that makes predictions by comparing scores."""


@dataclass(frozen=True, slots=True)
class Job:
    """One row. `shows` are regular expressions, each of which must be found in some rank's log: a line that proves that
    the feature ran. `steps`: at least so many must be found on each rank. `warns`: the warnings of the report that are
    expected because they are true; any other is a fault.

    `programs` must be on the PATH or in the CUDA toolkit that CUDA_HOME names.

    `small` jobs are thorough tests. `fails` says why a job fails, in a sentence; its test expects the failure.
    `test` is an existing test that covers the row: it is not run a second time.
    """

    framework: Framework
    name: str
    feature: str
    arguments: tuple[str, ...] = ()
    ranks: int = 2
    options: tuple[str, ...] = ()
    shows: tuple[str, ...] = ()
    steps: int = 2
    warns: tuple[str, ...] = ()
    modules: tuple[str, ...] = ()
    programs: tuple[str, ...] = ()
    small: bool = False
    fails: str = ""
    test: str = ""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of a run. `faults`: what was not as it must be; empty if all was. `absent`: what the job needs and
    this machine lacks; then nothing ran.
    """

    faults: tuple[str, ...] = ()
    absent: str = ""
    versions: str = ""
    step_ns: int = 0
    peak_nbytes: int = 0
    wall_s: float = 0.0
    output: str = ""
