"""A run's report as typed objects. Seconds, bytes and shares (0 to 1) throughout; the report's own fields are in
``Run.report``.
"""

from __future__ import annotations

import html
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from phantora_async.api.tables import Table, data_frame, rows_of, summary
from phantora_async.errors import UsageError
from phantora_async.figures import (
    ALLOCATED,
    INTERVAL_HIGH,
    INTERVAL_LOW,
    MFU,
    RESERVED,
    STEP_TIME,
    TFLOPS,
    TIME_ACCOUNTS,
    TOKENS,
)
from phantora_async.report import ReportError, read_whole, terminal_report, used_no_gpu
from phantora_async.report.gpu_work import WorkRow, family_rows, kernel_rows
from phantora_async.report.jobs import jobs_note
from phantora_async.report.steps import has_step_time
from phantora_async.wording import gib, seconds

if TYPE_CHECKING:
    import pandas
    from matplotlib.figure import Figure

    from phantora_async.comparison import Comparison


@dataclass(frozen=True, slots=True)
class Step:
    """One training step of the run."""

    number: int
    """The step's number as in all other outputs: step 1 begins with the run and ends at the first marker. It is not
    timed, so it is not listed.
    """
    time: float
    counted: bool
    """False: a warm-up step, which ``Run.step_time`` leaves out."""


@dataclass(frozen=True, slots=True)
class Rank:
    """One GPU: its figures in the steps that count (``window`` "steps"), or in the whole run."""

    rank: int
    server: int
    steps: int
    """The number of optimizer steps done."""
    window: str
    window_time: float
    compute: float
    copies: float
    transfer: float
    peers: float
    host_bound: float
    idle: float
    host_work: float
    """Seconds of the host's own work, without waits."""
    launches: int
    flops: float
    allocated_peak: int
    reserved_peak: int
    """Bytes, as PyTorch's caching allocator counts them, over the whole run."""
    device_peak: int
    """Bytes that the CUDA driver handed out at most."""
    allocated_least: int
    """The lower bound of ``allocated_peak``: the peak if memory were never kept longer than the program keeps it, which
    depends on timing.
    """


@dataclass(frozen=True, slots=True)
class Kernel:
    """GPU work that differs in nothing that is shown. Its figures are those of a step and GPU: the mean over all GPUs
    and the steps that count, or those of a GPU in the whole run if no steps were found.
    """

    title: str
    family: str
    """The model that prices it, or the kind of copy."""
    signature: str
    """Its cost signature; where several read the same, the one that takes most time."""
    launches: float
    time: float
    """Seconds."""
    mean_time: float
    """Seconds of one launch."""
    share: float
    """This kernel's share of the GPU time of all kernels in the same steps."""
    source: str
    """The source of the cost: measured, interpolated, roofline or unrecognised."""
    bound: str
    """The resource that bounds the kernel: compute, memory, PCIe or latency."""
    flops: float
    """The arithmetic of one launch, in floating-point operations: that of the signature."""
    line: str = ""
    """The line of the script at which the signature is launched first in a step; in a backward pass, the line that
    began it. Empty if it is not known.
    """


@dataclass(frozen=True, slots=True)
class KernelFamily:
    """All GPU work that one model prices, of a step and GPU; its kernels' times add up to its time."""

    family: str
    launches: float
    time: float
    """Seconds."""
    mean_time: float
    share: float


class Run:
    """A run that has ended. ``print(run)`` shows the report as the command line does."""

    def __init__(self, report: Mapping[str, Any], path: Path, run_dir: Path | None = None) -> None:
        self.report = report
        """The JSON report as it is."""
        self.path = path
        """The report's file."""
        self.run_dir = run_dir if run_dir is not None else path.parent
        self._simulated: Mapping[str, Any] = report["simulated"]

    # ---- the run ---------------------------------------------------------------------------------------------------

    @property
    def exit_code(self) -> int:
        return int(self.report["exit_code"])

    @property
    def failure(self) -> str | None:
        """The reason why the run failed; None if it did not."""
        failure = self.report["failure"]
        return None if failure is None else str(failure["text"])

    @property
    def world_size(self) -> int:
        return int(self._simulated["world_size"])

    @property
    def gpu(self) -> str:
        return str(self._simulated["gpu"])

    @property
    def cluster(self) -> str:
        return str(self._simulated["cluster"])

    @property
    def script(self) -> str:
        """The path of the script; empty in a report of an older version."""
        return str(self.report.get("run", {}).get("script", ""))

    @property
    def kept(self) -> str:
        """The time of the earlier run whose result this is, as nothing had changed; empty if the script was run."""
        return str(self.report.get("run", {}).get("kept", {}).get("began", ""))

    @property
    def warnings(self) -> list[str]:
        return [str(one["text"]) for one in self._simulated["warnings"]]

    def log(self, rank: int = 0) -> str:
        """The output of the rank, as its log has it."""
        if not 0 <= rank < self.world_size:
            raise UsageError(f"rank {rank}: the run had ranks 0 to {self.world_size - 1}")
        path = self.run_dir / f"rank{rank}.log"
        try:
            return path.read_text(encoding="utf-8", errors="replace")
        except OSError as error:
            raise UsageError(f"{path}: {error.strerror}") from None

    # ---- figures ---------------------------------------------------------------------------------------------------

    @property
    def step_time(self) -> float | None:
        """Seconds that a training step takes: the median of the steps that count. None: the run failed before it had
        any, for lack of memory or otherwise.
        """
        return STEP_TIME.value(self._simulated) if has_step_time(self.report) else None

    @property
    def step_source(self) -> str:
        """Says how steps were found."""
        return str(self._simulated["step"]["source"])

    @property
    def interval(self) -> tuple[float, float] | None:
        """The range, in seconds, that should hold the step times of nine real runs in ten."""
        low, high = INTERVAL_LOW.value(self._simulated), INTERVAL_HIGH.value(self._simulated)
        return None if low is None or high is None or not has_step_time(self.report) else (low, high)

    @property
    def used_gpu(self) -> bool:
        """False: no rank used an emulated GPU, so that nothing of it tells about a cluster, ``step_time`` least."""
        return not used_no_gpu(self._simulated)

    @property
    def independent(self) -> bool:
        """True: no rank was in a process group, so these are as many jobs as there are ranks, not one."""
        return bool(self._simulated.get("independent", False))

    @property
    def jobs_note(self) -> str:
        """The report's sentence if the ranks are jobs of their own: no rank was in a process group, or they are in one
        and none sent anything to another. Empty for one job.
        """
        return jobs_note(self._simulated) if self.used_gpu else ""

    @property
    def guests(self) -> list[dict[str, Any]]:
        """Memory that ranks hold on GPUs of other ranks: `gpu`, `owner`, `ranks`, `nbytes` of each, `site` and more."""
        found: list[dict[str, Any]] = self._simulated.get("memory", {}).get("guests", [])
        return [dict(one) for one in found]

    @property
    def generation(self) -> dict[str, Any] | None:
        """The responses that the program has generated: their lengths by `--lengths`, the time that others wait for the
        longest, `serving` (latencies and throughput) and `rollouts` (the parts of reinforcement learning's steps): the
        part `generation` of the report. None if nothing was generated, and no lengths were stated.
        """
        found: dict[str, Any] | None = self._simulated.get("generation")
        return found

    @property
    def start(self) -> dict[str, Any] | None:
        """An estimate of the time until NCCL has made the run's communicators, which no other figure contains:
        `low_ns`, `high_ns`, `communicators` of a rank, `ranks` of the largest. None if there were none, and in replays.
        """
        found: dict[str, Any] | None = self.report.get("start")
        return found

    @property
    def memory_growth(self) -> dict[str, Any] | None:
        """Memory that became more in each of the last steps: `nbytes` a step, `steps`, `site`, `op`. None: it did
        not.
        """
        found: dict[str, Any] | None = self._simulated.get("memory", {}).get("growth")
        return None if found is None else dict(found)

    @property
    def mfu(self) -> float:
        """The share of the GPUs' peak that their arithmetic reached."""
        return MFU.value(self._simulated) or 0.0

    @property
    def tflops_per_gpu(self) -> float:
        return TFLOPS.value(self._simulated) or 0.0

    @property
    def logged(self) -> dict[str, float]:
        """The last value of each figure that the script itself logged about its speed, such as ``{"tokens/s":
        75588.0}``.
        """
        rates = self._simulated.get("logged", [])
        return {str(one["rate"]): float(one["value"]) for one in rates if "rate" in one and "value" in one}

    @property
    def tokens_per_second(self) -> float | None:
        """The tokens per second that the script itself logged; None if it logged none in a known form."""
        return TOKENS.value(self._simulated)

    @property
    def peak_memory(self) -> int:
        """Bytes allocated at most on any GPU, as ``torch.cuda.max_memory_allocated`` counts."""
        return int(ALLOCATED.value(self._simulated) or 0)

    @property
    def peak_memory_least(self) -> int:
        """The lower bound of ``peak_memory``, which may depend on when GPU work ends; ``peak_memory`` is the upper
        bound.
        """
        return max(rank.allocated_least for rank in self.ranks)

    @property
    def peak_reserved(self) -> int:
        """Bytes reserved at most on any GPU by PyTorch's caching allocator."""
        return int(RESERVED.value(self._simulated) or 0)

    @property
    def memory_parts(self) -> dict[str, int]:
        """Bytes of the fullest GPU at its peak, by what they hold; empty in a report of an older version."""
        parts: dict[str, int] = self._simulated.get("memory", {}).get("fullest", {}).get("parts", {})
        return dict(parts)

    @property
    def fits(self) -> bool | None:
        """False: the run failed for lack of GPU memory. None: the report is of an older version."""
        verdict = self._simulated.get("memory", {}).get("verdict")
        return None if verdict is None else bool(verdict["fits"])

    # ---- lists -----------------------------------------------------------------------------------------------------

    @cached_property
    def steps(self) -> list[Step]:
        """The steps that the report lists: the last thousand."""
        step = self._simulated["step"]
        each_ns: Sequence[int] = step.get("each_ns", [])
        left_out = step["warm_up"] + step["counted"] - len(each_ns)
        first = step.get("first_listed", left_out + (2 if step["source"].startswith("optimizer") else 1))
        return [
            Step(first + place, for_ns / 1e9, left_out + place >= step["warm_up"])
            for place, for_ns in enumerate(each_ns)
        ]

    @cached_property
    def ranks(self) -> list[Rank]:
        return [_rank(one) for one in self._simulated["ranks"]]

    @cached_property
    def kernels(self) -> list[Kernel]:
        """The kernels by time, the longest first: the rows that the report shows."""
        return [_kernel(one) for one in kernel_rows(self._simulated)]

    @cached_property
    def families(self) -> list[KernelFamily]:
        """The GPU work by family, the longest first."""
        return [
            KernelFamily(one.family, one.launches, one.ns / 1e9, one.mean_ns / 1e9, one.share)
            for one in family_rows(self._simulated)
        ]

    def to_pandas(self, table: Table = "steps") -> pandas.DataFrame:
        """A DataFrame, a column for each field: "figures" is one row for the run, "memory" what each rank holds at its
        peak; "collectives" and "reasons" need a run with reasons. Raises UsageError, or EnvironmentUnusable without
        pandas.
        """
        kind, rows = rows_of(self, table)
        return data_frame(kind, rows)

    def plot_timeline(
        self, path: str | os.PathLike[str] | None = None, *, ranks: Sequence[int] | None = None, step: int | None = None
    ) -> Figure:
        """A picture of what each rank's GPU does in a step (ranks from top to bottom, time from left to right).

        With a trace in Chrome JSON (``run(..., trace="trace.json")``) it shows kernels, communication and copies of one
        step: `step`, or the last one traced. Without one it shows the mean step of each rank, split into its parts.
        `ranks`: which to show (default: the first 32). `path`: where to write the picture (.png, .svg, .pdf).
        Raises EnvironmentUnusable without matplotlib.
        """
        from phantora_async.api.pictures import timeline

        return timeline(self, path, ranks, step)

    def compare(self, *others: Run | str | os.PathLike[str]) -> Comparison:
        """Compares this run with others: what differs between them, and how that changed the figures."""
        return compare(self, *others)

    # ---- shown -----------------------------------------------------------------------------------------------------

    def __repr__(self) -> str:
        what = f"{self.world_size} x {self.gpu} ({self.cluster})"
        if self.failure is not None:
            return f"<Run of {what}: failed with exit code {self.exit_code}; {self.path}>"
        if not self.used_gpu:
            return f"<Run of {what}: no emulated GPU was used; {self.path}>"
        return f"<Run of {what}: {_step(self.step_time)} a step, {gib(self.peak_memory)} allocated; {self.path}>"

    def __str__(self) -> str:
        return terminal_report(self.report)

    def _repr_html_(self) -> str:
        """The run as HTML, for notebooks."""
        rows = [*summary(self), ("report", str(self.path))]
        cells = "".join(f"<tr><th>{html.escape(name)}</th><td>{html.escape(text)}</td></tr>" for name, text in rows)
        whole = html.escape(str(self))
        return f"<table>{cells}</table><details><summary>report</summary><pre>{whole}</pre></details>"


def load(path: str | os.PathLike[str]) -> Run:
    """Loads a finished run from its run directory or its JSON report. Raises UsageError."""
    file = Path(path)
    if file.is_dir():
        file /= "report.json"
    try:
        return Run(read_whole(file), file.absolute())
    except ReportError as error:
        hint = "" if file.exists() else "a run prints the path of its report when it ends"
        raise UsageError(str(error), hint) from None


def compare(*runs: Run | str | os.PathLike[str]) -> Comparison:
    """Compares the first run with the others: what differs, and how that changed the figures. Takes runs, run
    directories and reports. Raises UsageError.
    """
    from phantora_async.comparison import Side
    from phantora_async.comparison import compare as compare_sides

    loaded = [one if isinstance(one, Run) else load(one) for one in runs]
    return compare_sides([Side(str(one.path), one.report) for one in loaded])


def _rank(one: Mapping[str, Any]) -> Rank:
    total = sum(account.time_of(one) for account in TIME_ACCOUNTS)
    shares = {account.name: account.time_of(one) / total if total else 0.0 for account in TIME_ACCOUNTS}
    memory = one["memory"]
    return Rank(
        rank=one["rank"],
        server=one.get("server", 0),
        steps=one.get("steps", 0),
        window=one["window"],
        window_time=one.get("window_ns", total) / 1e9,
        **shares,
        host_work=one.get("host_work_ns", 0) / 1e9,
        launches=one.get("launches", 0),
        flops=one.get("flops", 0.0),
        allocated_peak=memory["allocated_peak_nbytes"],
        reserved_peak=memory["reserved_peak_nbytes"],
        device_peak=memory.get("device_peak_nbytes", 0),
        allocated_least=memory.get("allocated_least_nbytes", memory["allocated_peak_nbytes"]),
    )


def _kernel(row: WorkRow) -> Kernel:
    first = row.signatures[0]
    return Kernel(
        title=row.title,
        family=row.family,
        signature=first.get("signature", row.title),
        launches=row.launches,
        time=row.ns / 1e9,
        mean_time=row.mean_ns / 1e9,
        share=row.share,
        source=row.source,
        bound=row.bound,
        flops=first.get("flops", 0.0),
        line=row.site,
    )


def _step(value: float | None) -> str:
    return "not known" if value is None else _seconds(value)


def _seconds(value: float) -> str:
    return seconds(round(value * 1e9))
