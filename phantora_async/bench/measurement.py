"""Runs one case and measures what it takes of this machine."""

from __future__ import annotations

import itertools
import json
import os
import re
import resource
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

import psutil

from emu.contract.definitions.thread_names import RANK
from phantora_async.bench.jobs import BenchJob, Case
from phantora_async.child_process import child, interrupt_run

SAMPLE_EVERY_S = 2.0
RANKS_A_SAMPLE = 2
"""The ranks that each sample looks at: adding up the memory maps of one takes some 20 ms of processor time."""
STEP = re.compile(r"^\s*step\W+\d+")


@dataclass(slots=True)
class Point:
    """The measured cost of one case. The seconds of processor time under `cpu` add up to all that the run took."""

    ranks: int
    scaling: str
    micro_batches: int
    failure: str = ""
    wall_s: float = 0.0
    start_s: float | None = None
    """Seconds from the command to the end of the first step."""
    step_s: float | None = None
    """The median wall time of the later steps; None if the script printed fewer than two."""
    cpu: dict[str, float] = field(default_factory=dict)
    """The seconds of processor time by what used them. ranks: the ranks' own code, without hook. hook: the hook
    library's own threads. coordinator. kernel: the kernel, for ranks and coordinator. start: everything else, most of
    it the import of torch.
    """
    wall_ratio: float | None = None
    """Wall time over the time in which all usable cores, always busy, would have done the run. It is above 1 where
    processes wait for each other, or where other programs use the cores.
    """
    pss_nbytes: int | None = None
    """The memory of one rank in bytes: the median, over the ranks, of the largest value seen. Shared memory counts in
    shares.
    """
    private_nbytes: int | None = None
    records_per_s: float = 0.0
    rollbacks_per_s: float = 0.0
    simulated_step_ns: int | None = None
    passed_over: int = 0

    @property
    def cpu_per_rank_s(self) -> float:
        return (self.cpu["ranks"] + self.cpu["hook"] + self.cpu["kernel"]) / self.ranks

    def document(self) -> dict[str, Any]:
        return asdict(self)


class _Memory(threading.Thread):
    """Samples the shares of memory of ranks while a run lasts."""

    def __init__(self, pid: int) -> None:
        super().__init__(daemon=True)
        self._run = psutil.Process(pid)
        self._over = threading.Event()
        self._largest: dict[int, int] = {}
        self._turn = 0

    def run(self) -> None:
        while not self._over.wait(SAMPLE_EVERY_S):
            try:
                ranks = [one for one in self._run.children(recursive=True) if re.fullmatch(rf"{RANK}\d+", one.name())]
            except psutil.Error:
                continue
            for _ in range(min(RANKS_A_SAMPLE, len(ranks))):
                self._turn += 1
                self._sample(ranks[self._turn % len(ranks)])

    def _sample(self, rank: psutil.Process) -> None:
        try:
            pss = rank.memory_full_info().pss
        except psutil.Error:
            return
        self._largest[rank.pid] = max(pss, self._largest.get(rank.pid, 0))

    def end(self) -> int | None:
        self._over.set()
        self.join()
        return int(median(self._largest.values())) if self._largest else None


def measure(job: BenchJob, case: Case, profile: bool) -> tuple[Point, dict[str, Any]]:
    """Runs the case. Returns the point, and the profile if one is asked for. A run that fails makes a point with a
    failure.

    KeyboardInterrupt ends the run first.
    """
    point = Point(case.ranks, case.scaling, case.micro_batches)
    with tempfile.TemporaryDirectory(prefix="phantora-bench-") as folder:
        run_dir = Path(folder) / "run"
        command = [sys.executable, "-m", "phantora_async", "run", "-n", str(case.ranks), "--run-dir", str(run_dir)]
        command += [
            "--no-progress",
            *(["--profile-simulator"] if profile else []),
            *job.run_options,
            *job.command(case),
        ]
        before, started_s = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
        with (Path(folder) / "errors").open("w+") as errors:
            code, ends_s = _run(command, errors, point)
            errors.seek(0)
            told = errors.read()
        point.wall_s = round(time.monotonic() - started_s, 3)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        if ends_s:
            point.start_s = round(ends_s[0] - started_s, 3)
        if len(ends_s) > 1:
            point.step_s = round(median(b - a for a, b in itertools.pairwise(ends_s)), 3)
        report = _read(run_dir / "report.json")
        found = _read(run_dir / "profile.json") if profile else {}
    if code or not report:
        lines = [line for line in told.splitlines() if line.startswith("error:")]
        point.failure = lines[-1].removeprefix("error: ") if lines else f"exit code {code}"
        return point, found
    _take(point, report, after.ru_utime - before.ru_utime, after.ru_stime - before.ru_stime)
    return point, found


def _run(command: list[str], errors: Any, point: Point) -> tuple[int, list[float]]:
    """Runs the command. Returns its exit code, and the times at which the script reported the end of a step."""
    # A session of its own: Ctrl-C comes here alone, and the run gets one interrupt.
    options = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": errors, "start_new_session": True}
    ends_s: list[float] = []
    with child(command, interrupt_run, **options) as process:
        memory = _Memory(process.pid)
        memory.start()
        try:
            assert process.stdout is not None
            ends_s += [time.monotonic() for line in process.stdout if STEP.match(line)]
            code = process.wait()
        finally:
            point.pss_nbytes = memory.end()
    return code, ends_s


def _take(point: Point, report: dict[str, Any], user_s: float, system_s: float) -> None:
    """Fills the point with figures of the report and of the kernel's accounts."""
    simulator = report["simulator"]
    ranks, wall_s = simulator["rank_cpu"], simulator["wall_s"]
    coordinator_s = simulator["coordinator_cpu_s"] - simulator["coordinator_system_s"]
    kernel_s = ranks["system_s"] + simulator["coordinator_system_s"]
    split = {
        "ranks": ranks["user_s"] - ranks["hook_s"],
        "hook": ranks["hook_s"],
        "coordinator": coordinator_s,
        "kernel": kernel_s,
        "start": max(0.0, user_s + system_s - ranks["user_s"] - coordinator_s - kernel_s),
    }
    point.cpu = {name: round(seconds, 3) for name, seconds in split.items()}
    cores_s = sum(split.values()) / len(os.sched_getaffinity(0))
    point.wall_ratio = round(point.wall_s / cores_s, 3) if cores_s else None
    private = simulator["rank_private_nbytes"]
    point.private_nbytes = private["median"] if private else None
    point.records_per_s = round(simulator["records"] / wall_s, 1)
    point.rollbacks_per_s = round(simulator["speculation"]["rollbacks"] / wall_s, 3)
    point.simulated_step_ns = report["simulated"]["step"]["median_ns"]
    point.passed_over = simulator["passed_over"]


def _read(path: Path) -> dict[str, Any]:
    try:
        document = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return {}
    return document if isinstance(document, dict) else {}


def torch_version(job: BenchJob) -> str:
    """The version of torch in the environment that the runs use."""
    options = list(job.run_options)
    python = options[options.index("--python") + 1] if "--python" in options[:-1] else sys.executable
    code = "from importlib.metadata import version; print(version('torch'))"
    done = subprocess.run([python, "-c", code], capture_output=True, text=True, check=False)
    return done.stdout.strip()


def load() -> float:
    """The mean number of programs that wanted a processor in the last minute."""
    return os.getloadavg()[0]
