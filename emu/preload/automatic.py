"""Imports in the forker what ranks will import from installed packages, as far as that changes nothing.

What a script imports is found in its text, and in what its first rank had imported at the end of an earlier run. What
may be kept is found by a trial, once for each environment: see `trial`.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import sys
from collections.abc import Sequence

from ..contract.job import Job, Seat, torchrun_environment
from . import memory, script_imports, trial

_LAUNCHERS_VARIABLES = ("ACCELERATE_*", "CROSS_*", "DEEPSPEED_*", "DS_*", "FSDP_*", "GPUS_PER_NODE", "LIGHTNING_*",
                        "NNODES", "NODE_RANK", "PET_*", "PHANTORA_*", "TORCHELASTIC_*")  # fmt: skip
"""What launchers set for the ranks that they start."""


class Preloaded:
    """What has been imported for all ranks, and what the next run of the same script should know."""

    def __init__(self, seen_file: str, wanted: Sequence[str]) -> None:
        self._file = seen_file
        """"": nothing is kept for later runs."""
        self._wanted = frozenset(wanted)
        self._inherited = frozenset(sys.modules)

    def remember(self, seat: Seat) -> None:
        """At the end of a rank: which installed modules it has imported that the forker had not."""
        if seat.rank or not self._file:
            return
        known = self._inherited | self._wanted
        new = [name for name, module in list(sys.modules.items()) if name not in known and _is_installed(module)]
        if new:
            before = memory.read(self._file) or []
            memory.write(self._file, [*before, *(name for name in new if name not in before)])


def preload(job: Job) -> Preloaded:
    """In the forker, when torch is imported and before its threads, if any, start."""
    folder, environment = job.preload_cache, _environment()
    seen_file = ""
    if folder:
        seen_file = memory.path(folder, "seen", [*environment, *map(os.path.realpath, script_imports.scripts(job))])
    found = script_imports.installed_modules(job)
    wanted = list(dict.fromkeys([*found, *((memory.read(seen_file) or []) if seen_file else [])]))
    wanted = [name for name in wanted if not _is_imported(name)]
    for name in _accepted(job, wanted, environment) if wanted else ():
        with contextlib.suppress(Exception):  # it was imported on trial: whoever needs it will see the error
            importlib.import_module(name)
    return Preloaded(seen_file, wanted)


def _accepted(job: Job, wanted: list[str], environment: list[str]) -> list[str]:
    """What may be kept. A rank finds the script's own modules first: packages of the same names are refused."""
    accepted = _tried(job, wanted, environment, ())
    packages = dict.fromkeys(name.partition(".")[0] for name in accepted)
    hidden = [name for name in packages if _is_own(name, script_imports.folders(job))]
    return _tried(job, wanted, environment, hidden) if hidden else accepted


def _tried(job: Job, wanted: list[str], environment: list[str], refused: Sequence[str]) -> list[str]:
    variables = [*torchrun_environment(job, Seat(0, 0, 0))]
    if job.launcher:
        variables += _LAUNCHERS_VARIABLES
    file = ""
    if job.preload_cache:
        file = memory.path(job.preload_cache, "accepted", [*environment, *variables, "|", *refused, "|", *wanted])
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
    """Has the script a module of this name?"""
    return any(
        os.path.isfile(os.path.join(folder, f"{name}.py")) or os.path.isdir(os.path.join(folder, name))
        for folder in folders
        if not script_imports.is_installed(os.path.join(folder, ""))
    )


def _environment() -> list[str]:
    """All that the result of a trial follows from, apart from the modules: interpreter and installed packages."""
    folders = sorted({folder for folder in sys.path if script_imports.is_installed(os.path.join(folder, ""))})
    times = [str(os.stat(folder).st_mtime_ns) for folder in folders]
    return [sys.executable, sys.version, *folders, *times, sys.modules["torch"].__version__]


def _is_installed(module: object) -> bool:
    spec = getattr(module, "__spec__", None)
    return spec is not None and script_imports.is_installed(spec.origin)
