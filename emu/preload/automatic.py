"""Imports in the forker what ranks will import from installed packages, as far as that changes nothing.

What a script imports is found in its text. What may be kept is found by a trial, once for each environment: see
`trial`. What a script imports by other means stays with the ranks: were it learnt from an earlier run, the state of
Python's caches, and with it the host time, would not be the same in every run.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import sys
from collections.abc import Sequence

from ..contract.job import Job, Seat, torchrun_environment
from . import memory, script_changes, script_imports, trial

_LAUNCHERS_VARIABLES = (
    "ACCELERATE_*",
    "CROSS_*",
    "DEEPSPEED_*",
    "DS_*",
    "FSDP_*",
    "GPUS_PER_NODE",
    "LIGHTNING_*",
    "NNODES",
    "NODE_RANK",
    "PET_*",
    "PHANTORA_*",
    "RAY_*",
    "TORCHELASTIC_*",
)
"""Patterns of the variables that launchers set for the ranks that they start."""
_NEVER = ("ray",)
"""Packages that are never imported ahead: Ray's compiled library reads its settings when it is imported, and its driver
sets them for the processes that it starts, as environment variables that no trial sees it read. A process that got the
library from here believes that the cluster asks for no authentication, and is refused.
"""


def preload(job: Job) -> None:
    """Imports what ranks will import. Called in the forker, when torch is imported."""
    found, files = script_imports.read(job)
    wanted = [name for name in found if not _is_imported(name)]
    changes = script_changes.of(sorted(files))
    if not wanted or changes.unknown:
        return
    variables = [*torchrun_environment(job, Seat(0, 0, 0)), *sorted(changes.variables)]
    if job.launcher:
        variables += _LAUNCHERS_VARIABLES
    for name in _accepted(job, wanted, variables, sorted({*changes.packages, *_NEVER})):
        with contextlib.suppress(Exception):  # it was imported on trial: whoever needs it will see the error
            importlib.import_module(name)


def _accepted(job: Job, wanted: list[str], variables: list[str], refused: list[str]) -> list[str]:
    """Returns the modules that may be kept. A rank finds the script's own modules first: packages of the same names are
    refused.
    """
    accepted = _tried(job, wanted, variables, refused)
    packages = dict.fromkeys(name.partition(".")[0] for name in accepted)
    hidden = [name for name in packages if _is_own(name, script_imports.folders(job))]
    return _tried(job, wanted, variables, [*refused, *hidden]) if hidden else accepted


def _tried(job: Job, wanted: list[str], variables: list[str], refused: list[str]) -> list[str]:
    file = ""
    if job.preload_cache:
        file = memory.path(job.preload_cache, [*_environment(), *variables, "|", *refused, "|", *wanted])
        accepted = memory.read(file)
        if accepted is not None:
            return accepted
    accepted = trial.acceptable(wanted, variables, refused)
    if file:
        memory.write(file, accepted)
    return accepted


def _is_imported(wanted: str) -> bool:
    module, _, name = wanted.partition(":")
    found = sys.modules.get(module)
    return found is not None and (not name or name in vars(found))


def _is_own(name: str, folders: Sequence[str]) -> bool:
    """Tells whether the script has a module of this name."""
    return any(
        os.path.isfile(os.path.join(folder, f"{name}.py")) or os.path.isdir(os.path.join(folder, name))
        for folder in folders
        if not script_imports.is_installed(os.path.join(folder, ""))
    )


def _environment() -> list[str]:
    """Lists all that the result of a trial follows from, apart from the modules: interpreter and installed packages."""
    folders = sorted({folder for folder in sys.path if script_imports.is_installed(os.path.join(folder, ""))})
    times = [str(os.stat(folder).st_mtime_ns) for folder in folders]
    return [sys.executable, sys.version, *folders, *times, sys.modules["torch"].__version__]
