"""Runs the programs of `emu.hostbench` in processes of their own: on the GPU, in front of the hook library, counted."""

from __future__ import annotations

import contextlib
import json
import os
import platform
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed, wait
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, median, quantiles
from typing import IO, Any

from emu.contract.installed import EMU, HOOK_LIBRARY, program
from phantora_async.child_process import child, kill
from phantora_async.errors import EnvironmentUnusable
from profiles import AGAIN, HostModel, load_gpu

TIMEOUT_S = 240.0
"""The seconds after which counting or timing counts as hung; it takes 15 to 40 s."""
STACKS_S = 5.0
_OF_A_RANK = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
"""The variables of torchrun and batch systems: only the processes that are ranks here get theirs."""
_EMULATED_GPU = {"CUDA_VISIBLE_DEVICES": "0"}
"""The environment that makes the emulated GPU visible: the user's list is about GPUs of this machine."""


@dataclass(frozen=True, slots=True)
class MeasuredMachine:
    """The machine that was measured."""

    cpu: str
    cpus: int
    kernel: str
    python: str
    torch: str
    gpu: str
    """The name of the GPU; empty if there was none."""
    gpus: int


@dataclass(frozen=True, slots=True)
class Measurement:
    machine: MeasuredMachine
    counts: dict[str, dict[str, float]]
    """The units of each kind in one run, by program: right after other programs, and with `AGAIN` right after
    itself.
    """
    real_ns: dict[str, float] | None
    """The nanoseconds of one run, by the same names; None without a GPU."""
    detached_ns: dict[str, float] | None
    """The nanoseconds of one run with a library that does nothing, measured in turns with `real_ns`; None if only the
    GPU was asked.
    """
    fast: float
    """A tenth of the rounds took less than this factor times the median round: how steady the host was."""
    slow: float
    """A tenth of the rounds took more than this factor times the median round."""
    failed: dict[str, str]
    """The programs that this PyTorch cannot run, each with the reason."""
    no_calls: tuple[str, ...] = ()
    """The programs that do not tell what calls of CUDA take in a training step."""


def measure(
    python: Path, gpus: int, rounds: int, like: HostModel, say: Callable[[str], None], programs: Sequence[str] = ()
) -> Measurement:
    """Measures this host in about a minute. With several GPUs as many processes run at once, as in training. Work is
    counted as for `like`. If `programs` names any, only their time as a whole is measured. Raises EnvironmentUnusable.
    """
    if not HOOK_LIBRARY.is_file():
        raise EnvironmentUnusable(f"the hook library {HOOK_LIBRARY} is missing", "build it: python emu/hook/build.py")
    common = ["--backend", "nccl" if gpus > 1 else "fake", "--only", ",".join(programs)]
    with tempfile.TemporaryDirectory(prefix="phantora-host-") as folder:
        say("counting each program's work")
        counting = _Part(["count", *common, *_hook(folder, "modelled", like, gpus)], [_EMULATED_GPU])
        [[counted]] = _run(python, [counting])
        timing = [*common, "--rounds", str(rounds)]
        parts = []
        # The driver's time is the difference of two parts, so they take turns: a host's speed drifts within minutes.
        if gpus:
            parts.append(_Part(["real", *timing], _torchrun(gpus) if gpus > 1 else [{}]))
        if not (programs and gpus):
            parts.append(
                _Part(["detached", *timing, *_hook(folder, "none", like, gpus)], [_EMULATED_GPU] * max(1, gpus))
            )
        where = [f"on {gpus} GPU{'s' if gpus > 1 else ''}"] * bool(gpus)
        where += ["in front of a library that does nothing"] * (len(parts) > len(where))
        say(f"timing the programs {' and '.join(where)}")
        answers = _run(python, parts, rounds + 1)
    real = answers[0] if gpus else []
    detached = answers[-1] if len(answers) > bool(gpus) else []
    times = (real or detached)[0]
    return Measurement(
        MeasuredMachine(
            _cpu(),
            os.cpu_count() or 1,
            platform.release(),
            times["python"],
            times["torch"],
            times["gpu"] if real else "",
            gpus,
        ),
        by_run(counted),
        _of_mean_rank(real) if real else None,
        _of_mean_rank(detached) if detached else None,
        *_steadiness(by_run(times)),
        failed=counted["failed"] | times["failed"],
        no_calls=tuple(counted["no_calls"]),
    )


def by_run(answer: dict[str, Any]) -> dict[str, Any]:
    """Joins the figures of each program's run after others and of the run right after it, under one name for each."""
    return {**answer["first"], **{name + AGAIN: told for name, told in answer["again"].items()}}


def _hook(folder: str, mode: str, like: HostModel, gpus: int) -> list[str]:
    device_file = Path(folder, f"{mode}.txt")
    limits = ["device_count=1", "data_limit_nbytes=1048576", "float_limit_count=4096", f"host_mode={mode}"]
    limits += [f"server_ranks={max(1, gpus)}", f"server_cores={max(1, (os.cpu_count() or 1) // 2)}"]
    counted_by = [*like.counting_lines(), *like.tensor_cost_lines()]
    device_file.write_text("\n".join([*load_gpu("h200").device_file_lines(), *counted_by, *limits, ""]))
    return ["--hook", str(HOOK_LIBRARY), "--device-file", str(device_file)]


def _torchrun(gpus: int) -> list[dict[str, str]]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    common = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": str(gpus)}
    return [common | {"RANK": str(rank), "LOCAL_RANK": str(rank)} for rank in range(gpus)]


@dataclass(frozen=True, slots=True)
class _Part:
    """A group of processes of emu.hostbench that run at once."""

    arguments: Sequence[str]
    ranks: Sequence[dict[str, str]]
    """The additional environment of each process."""


def _run(python: Path, parts: Sequence[_Part], rounds: int = 0) -> list[list[dict[str, Any]]]:
    """Runs one process for each rank of the parts, and returns their answers. Several parts take turns in each of
    `rounds`: a host's speed may drift by a third within minutes, and the time of the GPU's driver is the difference of
    two parts. Raises EnvironmentUnusable. The processes have ended when it returns.
    """
    base = {name: value for name, value in os.environ.items() if name not in _OF_A_RANK}
    base |= {"PYTHONHASHSEED": "0", "OMP_NUM_THREADS": "1"}
    command = [str(python), "-X", "faulthandler", "-c", program("hostbench.__main__"), str(EMU)]
    by_turns = ["--in-turns"] * (len(parts) > 1)
    with contextlib.ExitStack() as stack:
        errors = [[stack.enter_context(tempfile.TemporaryFile("w+")) for _ in part.ranks] for part in parts]
        with ThreadPoolExecutor(1) as talker, contextlib.ExitStack() as processes:
            pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
            started = [
                [
                    processes.enter_context(
                        child([*command, *part.arguments, *by_turns], kill, env=base | more, stderr=err, **pipes)
                    )
                    for more, err in zip(part.ranks, files, strict=True)
                ]
                for part, files in zip(parts, errors, strict=True)
            ]
            for process in (process for processes_of in started for process in processes_of):
                stack.callback(_close, process)
            said = talker.submit(_take_turns, started, rounds if by_turns else 0)
            trouble = _wait(parts, started, TIMEOUT_S)
        if trouble is not None:
            raise EnvironmentUnusable(f"emu.hostbench {trouble}", details=_last_words([e for of in errors for e in of]))
        return [[json.loads(text.splitlines()[-1]) for text in of if text.strip()] for of in said.result()]


def _close(process: subprocess.Popen[str]) -> None:
    for pipe in (process.stdin, process.stdout):
        with contextlib.suppress(BrokenPipeError):
            if pipe is not None:
                pipe.close()


def _take_turns(parts: Sequence[Sequence[subprocess.Popen[str]]], rounds: int) -> list[list[str]]:
    """Starts the rounds, one part after the other, and returns the processes' answers after them. A process that has
    ended says nothing more.
    """
    for turn in range(rounds):
        for processes in parts:
            for process in processes:
                assert process.stdin is not None
                with contextlib.suppress(BrokenPipeError):
                    process.stdin.write("\n")
                    process.stdin.flush()
            for process in processes:
                assert process.stdout is not None
                while (line := process.stdout.readline()) and line.strip() != f"round {turn}":
                    pass  # libraries talk, too: NCCL_DEBUG
    return [[process.stdout.read() if process.stdout else "" for process in processes] for processes in parts]


def _wait(parts: Sequence[_Part], started: Sequence[Sequence[subprocess.Popen[str]]], limit_s: float) -> str | None:
    """Waits until all have ended well, or one has failed, or the time is over; returns what is wrong. A process that is
    out of time is asked for its Python stacks (faulthandler).
    """
    names = {
        process: f"{part.arguments[0]} {{}}{_which(rank, len(processes))}"
        for part, processes in zip(parts, started, strict=True)
        for rank, process in enumerate(processes)
    }
    with ThreadPoolExecutor(len(names)) as pool:
        waits = {pool.submit(process.wait): process for process in names}
        trouble = None
        try:
            for done in as_completed(waits, limit_s):
                if done.result() != 0:
                    trouble = names[waits[done]].format(f"ended with exit code {done.result()}")
                    break
        except TimeoutError:
            late = [process for wait, process in waits.items() if not wait.done()]
            trouble = (names[late[0]] if late else "{}").format(f"did not end within {limit_s:.0f} s")
            for process in late:
                process.send_signal(signal.SIGABRT)
            wait(waits, timeout=STACKS_S)
        for process in names:
            process.kill()
    return trouble


def _which(rank: int, count: int) -> str:
    return f" (process {rank} of {count})" if count > 1 else ""


def _last_words(errors: Sequence[IO[str]]) -> str:
    """The last lines that the processes printed to stderr."""
    texts = []
    for file in errors:
        file.seek(0)
        texts.append(file.read().strip()[-2000:])
    return "\n".join(f"process {rank}:\n{text}" if len(texts) > 1 else text for rank, text in enumerate(texts) if text)


def _of_mean_rank(answers: Sequence[dict[str, Any]]) -> dict[str, float]:
    """The mean time of each program over the processes that ran at once, each with the median of its rounds. No
    program's host waits for another rank: the time of the slowest one is `HostModel.slowest`.
    """
    times = [by_run(answer) for answer in answers]
    return {name: fmean(median(one[name]) for one in times if name in one) for name in times[0]}


def _steadiness(times: dict[str, list[int]]) -> tuple[float, float]:
    """The tenth and ninetieth percentile of a program's rounds over their median, as the median of all programs."""
    ratios = []
    for samples in times.values():
        if len(samples) >= 4:
            tenths = quantiles(samples, n=10, method="inclusive")
            ratios.append((tenths[0] / tenths[4], tenths[8] / tenths[4]))
    if not ratios:
        return 1.0, 1.0
    return min(1.0, median(low for low, _ in ratios)), max(1.0, median(high for _, high in ratios))


def _cpu() -> str:
    """The processor's name, as the kernel reports it."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or sys.platform
