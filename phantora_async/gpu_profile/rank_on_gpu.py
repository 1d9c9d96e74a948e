"""Runs one rank of a script on this machine's GPU: `emu.real_run` in the interpreter that has PyTorch."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import tempfile
import uuid
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from emu.contract.installed import EMU, program
from emu.contract.records import ExitKind
from phantora_async.child_process import child, kill
from phantora_async.errors import InternalError, ScriptFailed

WARM_STEPS = 3


@dataclass(frozen=True, slots=True)
class ProfiledJob:
    """A script, and the rank of it that is run here. The fields are those of `emu.real_run`'s task."""

    script: str
    module: bool
    arguments: tuple[str, ...]
    rank: int
    world_size: int
    per_server: int
    """The number of ranks of one server."""
    steps: int
    """The number of steps that are traced, after the first `WARM_STEPS`."""
    to_the_end: bool
    everything: bool = False
    """True: the script is traced from its start to its end."""


@dataclass(frozen=True, slots=True)
class Traced:
    """The output of a traced rank. The trace exists until `traced` ends."""

    trace: Path | None
    """The path of the trace; None if the script ended before there was anything to trace."""
    first_step: int
    steps: int
    """The number of traced steps, 0 if the script never stepped an optimizer."""
    about: dict[str, Any]
    """The GPU, its clocks and power, and versions: emu/real_run/__main__.py."""


@contextlib.contextmanager
def traced(python: Path, job: ProfiledJob) -> Iterator[Traced]:
    """Runs the rank to its end; its output goes to this process's. Raises ScriptFailed."""
    with tempfile.TemporaryDirectory(prefix="phantora-profile-") as folder:
        task = Path(folder, "task.json")
        task.write_text(json.dumps(asdict(job) | {"warm": WARM_STEPS, "folder": folder}))
        _run([str(python), "-c", program("real_run.__main__"), str(EMU), str(task)], _environment(job, folder))
        result = Path(folder, "result.json")
        if not result.is_file():
            yield Traced(None, 0, 0, {})
            return
        about = json.loads(result.read_text())
        yield Traced(Path(about.pop("trace")), about.pop("first_step"), about.pop("steps"), about)


def _run(command: list[str], environment: dict[str, str]) -> None:
    """Runs the command. The process and its children have ended when this returns or raises."""
    sys.stdout.flush()
    with child(command, kill, env=environment, process_group=0) as process:
        try:
            code = process.wait()
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
    if code == ExitKind.INTERNAL:
        raise InternalError("the process that ran the script failed; its message is above")
    if code != 0:
        code = code if code > 0 else 128 - code
        raise ScriptFailed(f"the script ended with exit code {code}; nothing was written", code)


def _environment(job: ProfiledJob, folder: str) -> dict[str, str]:
    """The environment that torchrun would set, except that the local rank is always 0: scripts choose their GPU by it,
    and the rank uses this machine's first one.
    """
    visible = os.environ.get("CUDA_VISIBLE_DEVICES", "0").split(",")[0]
    rank, world_size = str(job.rank), str(job.world_size)
    servers = -(-job.world_size // job.per_server)
    return os.environ | {
        "CUDA_VISIBLE_DEVICES": visible,
        "PYTHONUNBUFFERED": os.environ.get("PYTHONUNBUFFERED", "1"),
        "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "1"),
        "RANK": rank,
        "LOCAL_RANK": "0",
        "WORLD_SIZE": world_size,
        "LOCAL_WORLD_SIZE": str(job.per_server),
        "GROUP_RANK": str(job.rank // job.per_server),
        "GROUP_WORLD_SIZE": str(servers),
        "ROLE_NAME": "default",
        "ROLE_RANK": rank,
        "ROLE_WORLD_SIZE": world_size,
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": "29500",
        "TORCHELASTIC_RUN_ID": uuid.uuid4().hex,
        "TORCHELASTIC_RESTART_COUNT": "0",
        "TORCHELASTIC_MAX_RESTARTS": "0",
        "TORCHELASTIC_USE_AGENT_STORE": "False",
        "TORCHELASTIC_ERROR_FILE": f"{folder}/error.json",
    }
