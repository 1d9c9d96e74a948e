"""Limits of this shell's processes (`ulimit`) that no run can keep: raised if that is allowed, else named."""

from __future__ import annotations

import os
import resource

import psutil

from phantora_async.errors import EnvironmentUnusable

OWN_FILES = 128
"""The open files that the command or a rank needs, however many ranks there are."""
FILE_NBYTES = 64 << 20
"""The largest file of a small run, with room to spare."""
PROCESSOR_S = 60
"""The seconds of processor time that importing PyTorch takes on a slow machine, with room to spare."""
THREADS_OF_A_RANK = 8
"""The threads of a rank: PyTorch's, NCCL's and the hook's."""
_UNLIMITED = resource.RLIM_INFINITY


def check(ranks: int, other_files: int = 0) -> None:
    """Raises soft limits that are too low, if hard ones allow that. Raises EnvironmentUnusable if not. `other_files`:
    open files for anything but ranks.
    """
    files = OWN_FILES + other_files + 2 * ranks
    if (most := _raised(resource.RLIMIT_NOFILE, files)) is not None:
        raise EnvironmentUnusable(
            f"this run needs {files} open files, but a process may open {most}", f"ulimit -n {files}"
        )
    if (most := _raised(resource.RLIMIT_AS, None)) is not None:
        raise EnvironmentUnusable(
            f"a process may have {most >> 20} MiB of virtual memory, but ranks reserve address space as large as their "
            "GPUs' memory (it takes no memory of this machine)",
            "ulimit -v unlimited",
        )
    if (most := _raised(resource.RLIMIT_FSIZE, FILE_NBYTES)) is not None:
        raise EnvironmentUnusable(
            f"a process may write files of {most} bytes, but this run's need up to {FILE_NBYTES >> 20} MiB",
            "ulimit -f unlimited",
        )
    if (most := _raised(resource.RLIMIT_CPU, PROCESSOR_S)) is not None:
        raise EnvironmentUnusable(
            f"a process may use {most} s of processor time, but importing PyTorch can take {PROCESSOR_S} s",
            "ulimit -t unlimited",
        )
    if os.getuid() and (most := _raised(resource.RLIMIT_NPROC, None)) is not None:
        needed = _threads_of_user() + THREADS_OF_A_RANK * ranks
        if most < needed:
            raise EnvironmentUnusable(
                f"this run needs {needed} processes and threads of this user, those that run now included, but there "
                f"may be {most}",
                f"ulimit -u {needed}",
            )


def _raised(what: int, needed: int | None) -> int | None:
    """Raises the soft limit to `needed`, None for no limit. Returns None if that is enough; else the hard limit, which
    is not.
    """
    soft, hard = resource.getrlimit(what)
    if _enough(soft, needed):
        return None
    if not _enough(hard, needed):
        return hard
    resource.setrlimit(what, (hard if needed is None else needed, hard))
    return None


def _enough(limit: int, needed: int | None) -> bool:
    return limit == _UNLIMITED or (needed is not None and limit >= needed)


def _threads_of_user() -> int:
    own = os.getuid()
    found = 0
    for process in psutil.process_iter(["uids", "num_threads"]):
        uids = process.info["uids"]
        if uids is not None and uids.real == own:
            found += process.info["num_threads"] or 1
    return found
