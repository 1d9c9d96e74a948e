"""Refuses programs that start ranks where a script is expected: the message names the command that works."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import shutil
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

from phantora_async.errors import UsageError
from phantora_async.options import RunOptions

LAUNCHERS = ("torchrun", "accelerate", "deepspeed", "fabric", "lightning", "colossalai", "horovodrun", "composer")
"""Programs that start the ranks of a server."""
LAUNCHER_MODULES = (
    "torch.distributed.run",
    "torch.distributed.launch",
    "torch.distributed.launcher",
    "accelerate.commands.launch",
    "accelerate.commands.accelerate_cli",
    "deepspeed.launcher.runner",
    "deepspeed.launcher.launch",
)
OF_CLUSTERS = ("srun", "mpirun", "mpiexec", "mpiexec.hydra", "orterun", "prun", "aprun", "jsrun", "flux")
"""Programs that start processes on several machines."""
MONITOR_INTERVAL = ("--monitor-interval", "--monitor_interval")
MONITOR_INTERVAL_S = 0.1
"""The default of torchrun."""
MOST_HEAD = 256
"""The bytes that are read of a script's first line."""
_PYTHON = re.compile(r"python(\d(\.\d+)?)?$")


def check(given: RunOptions) -> None:
    """Raises UsageError if the script starts ranks itself, or is the interpreter or another command."""
    script = os.fspath(given.script)
    words = [script, *given.arguments]
    if given.module:
        if script in LAUNCHER_MODULES:
            raise UsageError(_STARTS.format(f"-m {script}"), _with_launcher(given, ["python", "-m", *words]))
        return
    name = Path(script).name
    if Path(script).is_dir():
        return
    if name in LAUNCHERS:
        raise UsageError(_STARTS.format(name), _with_launcher(given, words))
    if name in OF_CLUSTERS:
        raise UsageError(
            f"{name} starts processes on the machines of a cluster; here all servers are emulated",
            f"run what it starts: {_command(given, _after_python(words) or ['train.py'])}",
        )
    if _PYTHON.match(name):
        rest = _after_python(words)
        if rest[:1] == ["-m"] and rest[1:2] and rest[1] in LAUNCHER_MODULES:
            raise UsageError(_STARTS.format(f"-m {rest[1]}"), _with_launcher(given, words))
        raise UsageError(
            f"{script} is the interpreter, not a script",
            f"{_command(given, rest or ['train.py'])} (--python names an interpreter)",
        )
    if not Path(script).exists() and shutil.which(script):
        raise UsageError(f"{script} is a command, not a script", _with_launcher(given, words))


_STARTS = "{} starts ranks itself: it is a launcher, not a script"


def _after_python(words: Sequence[str]) -> list[str]:
    """The words that follow a Python interpreter and its options among `words`; empty if there is no interpreter."""
    for at, word in enumerate(words):
        if _PYTHON.match(Path(word).name):
            rest = list(words[at + 1 :])
            while rest[:1] and rest[0].startswith("-") and rest[0] not in ("-m", "-c"):
                rest.pop(0)
            return rest
    return []


def _with_launcher(given: RunOptions, words: Sequence[str]) -> str:
    return _command(given, ["--launcher", "--", *words])


def _command(given: RunOptions, words: Sequence[str]) -> str:
    sizes = {"-n": given.world_size, "--nnodes": given.nnodes, "--nproc-per-node": given.nproc_per_node}
    told = [word for flag, size in sizes.items() if size is not None for word in (flag, str(size))]
    return shlex.join(["phantora-async", "run", *told, *words])


def restart_delay_ns(arguments: Sequence[str]) -> int:
    """The nanoseconds that a launcher takes to start ranks again after one has failed: torchrun's agent looks at its
    ranks once in every monitor interval. Other work on a cluster (ending the other ranks, starting Python) takes no
    virtual time, as at the run's start.
    """
    words = [part for word in arguments for part in word.split("=", 1)]
    given = [value for name, value in pairwise(words) if name in MONITOR_INTERVAL]
    for text in (*given, os.environ.get("PET_MONITOR_INTERVAL", "")):
        with contextlib.suppress(ValueError):
            return round(float(text) * 1e9)
    return round(MONITOR_INTERVAL_S * 1e9)


def check_environment(words: Sequence[str], python: Path) -> None:
    """Raises UsageError if the launcher belongs to another environment than the ranks' interpreter: its processes would
    bypass the emulated GPUs.
    """
    name = words[0]
    found = shutil.which(name) if "/" in name or not (python.parent / name).exists() else None
    if found is None:
        return
    other = Path(found) if _PYTHON.match(Path(found).name) else _interpreter_of(Path(found))
    if other is None or os.path.realpath(other.parent) == os.path.realpath(python.parent):
        return
    raise UsageError(
        f"{found} is of another environment ({other}) than the ranks' interpreter {python}",
        f"name the launcher of that environment: {python.parent / Path(found).name}; or its interpreter: "
        f"--python {other}",
    )


def _interpreter_of(path: Path) -> Path | None:
    """The Python interpreter that a script names in its first line by a path; None for other programs, and for
    `/usr/bin/env python`.
    """
    try:
        with path.open("rb") as file:
            head = file.readline(MOST_HEAD)
    except OSError:
        return None
    words = os.fsdecode(head[2:]).split() if head.startswith(b"#!") else []
    return Path(words[0]) if words and _PYTHON.match(Path(words[0]).name) else None
