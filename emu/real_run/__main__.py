"""Runs a script as one rank on a real GPU and traces some of its steps: `python -m emu.real_run TASK.json`.

The task is a JSON object with the fields of `Task`. The trace is written into its folder as trace.json; result.json
says what was traced. The exit code is the script's.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import sys
import traceback
from dataclasses import dataclass
from typing import Any

from ..contract.records import ExitKind
from ..start import script
from ..start.early_end import flush_files
from ..start.program import Program, ProgramKind


@dataclass(frozen=True, slots=True)
class Task:
    script: str
    module: bool
    arguments: list[str]
    rank: int
    world_size: int
    per_server: int
    warm: int
    steps: int
    to_the_end: bool
    """Let the script go on after the traced steps."""
    everything: bool
    """Trace all that it does."""
    folder: str


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m emu.real_run", description=__doc__)
    parser.add_argument("task")
    with open(parser.parse_args().task) as file:
        task = Task(**json.load(file))
    code: int = ExitKind.INTERNAL
    try:
        code = _run(task)
    except BaseException:
        traceback.print_exc()  # an error of ours
    finally:
        _leave(code)


def _leave(code: int) -> None:
    with contextlib.suppress(OSError, ValueError):
        flush_files()
    os._exit(code)


def _run(task: Task) -> int:
    import torch

    from . import groups, steps
    from .gpu_state import GpuState
    from .tracing import Tracing

    state: GpuState | None = None

    def watch_gpu() -> None:
        """Watches the GPU once the script uses it: it may want to choose settings, or to fork, before."""
        nonlocal state
        if state is None and torch.cuda.is_initialized():
            state = GpuState(f"GPU-{torch.cuda.get_device_properties(0).uuid}")

    def step_ends() -> None:
        watch_gpu()
        tracing.step_ends()

    def finish() -> None:
        """Writes what was traced."""
        if (window := tracing.window) is None:
            return
        result: dict[str, Any] = {
            "trace": tracing.write(),
            "first_step": window.first,
            "steps": window.steps,
            "seconds": window.ended_s - window.began_s,
        }
        watch_gpu()
        result |= _software() | (_hardware(state, window) if state is not None else {})
        with open(os.path.join(task.folder, "result.json"), "w") as file:
            json.dump(result, file)

    def window_over() -> None:
        finish()
        if not task.to_the_end and tracing.window is not None:
            print(
                f"phantora-async: steps {tracing.window.first} to {tracing.done} are traced, the script ends here "
                "(--whole lets it go on)",
                file=sys.stderr,
            )
            _leave(0)

    tracing = Tracing(task.warm, task.steps, task.everything, task.folder, window_over)
    groups.install(task.rank, task.world_size)
    steps.at_step(step_ends)
    tracing.script_begins()
    kind = ProgramKind.MODULE if task.module else ProgramKind.FILE
    end = script.run(Program(kind, task.script, tuple(task.arguments)))
    # A script that ends within the traced steps has not called `window_over`.
    if end.code == 0 and not os.path.exists(os.path.join(task.folder, "result.json")):
        tracing.script_ends()
        finish()
    return end.code


def _software() -> dict[str, str]:
    import torch

    nccl = torch.cuda.nccl.version() if torch.distributed.is_nccl_available() else ()
    return {
        "torch": torch.__version__,
        "cuda": torch.version.cuda or "",
        "cudnn": str(torch.backends.cudnn.version() or ""),
        "nccl": ".".join(map(str, nccl)) if isinstance(nccl, tuple) else str(nccl),
        "python": sys.version.split()[0],
    }


def _hardware(state: Any, window: Any) -> dict[str, Any]:
    import torch

    state.stop()
    clocks, powers = state.between(window.began_s, window.ended_s)
    return {
        "gpu": torch.cuda.get_device_name(0),
        "driver": state.driver,
        "power_limit_w": state.power_limit_w,
        "full_mhz": state.full_mhz,
        "sm_mhz": clocks,
        "power_w": [power for power in powers if power],
        "nvml_problem": state.problem,
    }


if __name__ == "__main__":
    main()
