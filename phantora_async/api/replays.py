"""Implements ``replay``: a recorded run executed again, in this process."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from formats.files import write_whole
from phantora_async.api.results import Run
from phantora_async.config.outputs import report_of, run_dir_of
from phantora_async.errors import NotWritten, UsageError
from phantora_async.options import PathText
from phantora_async.recording import Recording, load
from phantora_async.replaying.differences import (
    MAY_CHANGE,
    attention_remarks,
    attention_share,
    attributes,
    grid_share,
    memory_calls,
)
from phantora_async.replaying.machine import Changes, cast_for, slow_gpus, spec_of
from phantora_async.replaying.repetition import repetition_of
from phantora_async.replaying.replay import Replayed
from phantora_async.replaying.replay import replay as execute
from phantora_async.report import to_json
from phantora_async.run_spec import RunSpec
from phantora_async.wording import seconds, short

ASKERS = {
    "query": "its allocators, to let go of memory, or its process groups",
    "elapsed": "timers of DistributedDataParallel, for example",
    "clock_read": "its own timers",
}
"""The parts of PyTorch's C++ code that ask each kind of question."""


@dataclass(frozen=True, slots=True)
class Written:
    """A replay that has been written: its result, and where its report is."""

    replayed: Replayed
    recording: Recording
    spec: RunSpec
    path: Path
    run_dir: Path

    def remarks(self) -> Iterator[str]:
        """Yields remarks for the user: how many answers differ from the run's, and which device attributes of the GPU
        do.
        """
        for kind, (answers, other, inside) in self.replayed.compared.items():
            if other:
                text = f"{other:,} of {answers:,} answers to {kind} differ from those of the run"
                text += f"; PyTorch's own C++ code asked {inside:,} of them ({ASKERS[kind]})" if inside else ""
                yield text + (self._asked_for_memory() if inside and kind == "query" else "")
        setup = self.recording.setup
        if changed := attributes(self.recording, self.spec.gpu):
            yield (
                f"{len(changed)} device attributes differ, which PyTorch reads when it starts; what it chose by them "
                "is as recorded. Kernels with a block for each SM of the recorded GPU, or a multiple: "
                f"{grid_share(self.replayed.report, setup.gpu.sm_count):.1%} of GPU time"
            )
        yield from attention_remarks(setup.gpu, self.spec.gpu, attention_share(self.replayed.report))

    def _asked_for_memory(self) -> str:
        """Says what follows from answers to allocators: host time of the recorded steps that other answers change."""
        first_rank = self.recording.own[0]
        counted = self.replayed.report["simulated"]["ranks"][first_rank]["counted_steps"]
        if counted is None or not (calls := memory_calls(self.recording, first_rank, *counted)):
            return ""
        steps = counted[1] - counted[0] + 1
        each_ns = round(self.spec.host.price_ns("alloc"))
        return (
            f". While memory is in use, they ask CUDA for more: in the steps that count, rank {first_rank} did so "
            f"{calls:,} times when it was recorded, {seconds(each_ns * calls // steps)} of host time a step, and may "
            "do so more or less often there"
        )


def written(
    folder: Path, changes: Changes, allow: Sequence[str], run_dir: str | None = None, report: str | None = None
) -> Written:
    """Replays the recording and writes the report. Raises PhantoraError."""
    done, recording, spec = replayed(load(folder), changes, allow)
    claimed = run_dir_of(run_dir, "replay", spec.world_size)
    path = report_of(report, claimed.path)
    done.report["run"] = recording.run
    try:
        write_whole(path, to_json(done.report))
    except OSError as error:
        raise NotWritten(f"cannot write the report {short(path)}: {error.strerror}") from None
    return Written(done, recording, spec, path, claimed.path)


def replayed(recording: Recording, changes: Changes, allow: Sequence[str]) -> tuple[Replayed, Recording, RunSpec]:
    """Replays the recording. Returns the result, the recording as the replay's ranks have it, and the machine. Raises
    PhantoraError.
    """
    if unknown := set(allow) - set(MAY_CHANGE):
        raise UsageError(f"allow: expected some of {', '.join(MAY_CHANGE)}, found {sorted(unknown)[0]!r}")
    spec = spec_of(recording, changes, Path(os.devnull))
    slow = slow_gpus(changes, spec.world_size)
    recording = cast_for(recording, changes, spec, slow, frozenset(allow))
    repetition = None if changes.steps is None else repetition_of(recording, changes.steps)
    return execute(recording, spec, frozenset(allow), slow, repetition), recording, spec


def replay(
    recording: PathText,
    *,
    cluster: PathText | None = None,
    gpu: PathText | None = None,
    host: str | None = None,
    kernel_times: Sequence[str] = (),
    nccl: Sequence[str] = (),
    network: Sequence[str] = (),
    slow: Sequence[str] = (),
    fault: Sequence[str] = (),
    faults: PathText | None = None,
    width: Sequence[str] = (),
    replicas: str | None = None,
    steps: int | None = None,
    allow: Sequence[str] = (),
    run_dir: PathText | None = None,
    report: PathText | None = None,
) -> Run:
    """Executes what ``run(..., record=DIR)`` has kept, as `phantora-async replay DIR` does, and returns its report.

    ``replay("rec", gpu="b200", nccl=["NCCL_ALGO=Ring"], slow=["17=0.7"])``. An argument that is not given keeps the
    run's value. Raises the errors of ``phantora_async.errors``; PathChanged, if the script would have been answered
    otherwise.
    """
    changes = Changes(
        cluster=_text(cluster),
        gpu=_text(gpu),
        faults=_text(faults),
        host=host,
        kernel_times=tuple(kernel_times),
        nccl=tuple(nccl),
        network=tuple(network),
        slow=tuple(slow),
        fault=tuple(fault),
        width=tuple(width),
        replicas=replicas,
        steps=steps,
    )
    places = [None if path is None else os.fspath(path) for path in (run_dir, report)]
    done = written(Path(recording), changes, tuple(allow), *places)
    return Run(done.replayed.report, done.path, done.run_dir)


def _text(path: PathText | None) -> str | None:
    return None if path is None else os.fspath(path)
