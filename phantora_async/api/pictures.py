"""Draws what each GPU does in a step: from a trace, or from the report's shares."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from formats.files import MOST_TRACE_NBYTES, read_text, write_figure
from formats.json_lines import parse
from phantora_async.errors import EnvironmentUnusable, UsageError, drawing
from phantora_async.figures import TIME_ACCOUNTS
from phantora_async.figures.time_accounts import shown_accounts
from phantora_async.trace_request import TraceRequest

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from phantora_async.api.results import Run

MOST_RANKS = 32
"""The most ranks that are shown if the user chooses none."""
_BRIGHT = {account.name: account.bright for account in TIME_ACCOUNTS}
LANES = {"compute": _BRIGHT["compute"], "communication": _BRIGHT["transfer"], "copies": "#1c7c4a"}
"""The colours of the lanes of a traced step; copies have `--good` of the page's style sheet (pages/page.css)."""
STEP = re.compile("ProfilerStep#([0-9]{1,18})")
Span = tuple[float, float]
"""The begin and the length of an interval, in ms."""


class _Event(NamedTuple):
    name: str
    category: Any
    at_us: float
    for_us: float


@dataclass(slots=True)
class _Traced:
    """One traced step of one rank: its begin and end in µs, and the spans of each lane."""

    begin_us: float
    end_us: float
    spans: dict[str, list[Span]] = field(default_factory=lambda: {lane: [] for lane in LANES})


def timeline(run: Run, path: str | os.PathLike[str] | None, ranks: Sequence[int] | None, step: int | None) -> Figure:
    """See ``Run.plot_timeline``."""
    try:
        from matplotlib import pyplot
    except ImportError:
        raise EnvironmentUnusable(
            "pictures need matplotlib, which is not installed", "pip install 'phantora-async[plot]'"
        ) from None
    files = _trace_files(run)
    shown = _chosen(run, ranks, sorted(files) or list(range(run.world_size)))
    if step is not None and not files:
        raise UsageError(f"step {step}: without a trace no single step is known", 'run(..., trace="trace.json")')
    figure, axes = pyplot.subplots(figsize=(10, 1.5 + 0.32 * len(shown)), layout="constrained")
    if files:
        _draw_trace(axes, {rank: files[rank] for rank in shown}, step)
    else:
        _draw_shares(axes, run, shown)
    left_out = len(files or run.ranks) - len(shown) if ranks is None else 0
    if left_out > 0:
        axes.set_title(f"{axes.get_title()}; {left_out} more ranks: ranks=[...]", fontsize="medium")
    axes.set_yticks(range(len(shown)), [str(rank) for rank in shown])
    axes.set_ylabel("rank")
    axes.set_xlabel("ms")
    axes.invert_yaxis()
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.02 - 1.2 / (len(shown) + 3)), ncols=6, frameon=False)
    if path is not None:
        with drawing(path):
            write_figure(Path(path), figure)
    return figure


def _chosen(run: Run, ranks: Sequence[int] | None, known: Sequence[int]) -> list[int]:
    if ranks is None:
        return list(known[:MOST_RANKS])
    for rank in ranks:
        if rank not in known:
            reason = "it was not traced" if 0 <= rank < run.world_size else f"the last rank is {run.world_size - 1}"
            raise UsageError(f"rank {rank}: {reason}")
    return list(ranks)


# ---- the mean step of the report -------------------------------------------------------------------------------------


def _draw_shares(axes: Any, run: Run, shown: Sequence[int]) -> None:
    step_ms = (run.step_time or 0.0) * 1e3
    accounts = shown_accounts({one.name: getattr(rank, one.name) for one in TIME_ACCOUNTS} for rank in run.ranks)
    for number, account in enumerate(accounts):
        for place, rank in enumerate(run.ranks[one] for one in shown):
            begin = sum(getattr(rank, earlier.name) for earlier in accounts[:number]) * step_ms
            label = account.title if place == 0 else None
            axes.barh(place, getattr(rank, account.name) * step_ms, left=begin, color=account.bright, label=label)
    axes.set_title("the parts of the mean step (a trace shows when: trace=...)", fontsize="medium")


# ---- a step of a trace -----------------------------------------------------------------------------------------------


def _trace_files(run: Run) -> dict[int, Path]:
    """The trace files by rank; empty if the run has no trace, or none in Chrome JSON."""
    path = run.report.get("run", {}).get("trace")
    if path is None:
        return {}
    request = TraceRequest(Path(path), False, ())
    try:
        files = {rank: request.file(rank) for rank in range(run.world_size)}
    except StopIteration:  # Perfetto's form
        return {}
    return {rank: file for rank, file in files.items() if file.is_file()}


def _draw_trace(axes: Any, files: Mapping[int, Path], step: int | None) -> None:
    traced = {rank: _read(path, step) for rank, path in files.items()}
    begin_us = min(one.begin_us for one in traced.values())
    for place, one in enumerate(traced.values()):
        for number, (lane, colour) in enumerate(LANES.items()):
            spans = [((at - begin_us) / 1e3, length / 1e3) for at, length in one.spans[lane]]
            top, height = place - 0.4 + 0.8 * number / len(LANES), 0.8 / len(LANES)
            axes.broken_barh(spans, (top, height), color=colour, label=lane if place == 0 else None)
    axes.set_xlim(0, max(one.end_us - begin_us for one in traced.values()) / 1e3)
    axes.set_title("GPU work of one step" if step is None else f"GPU work of step {step}", fontsize="medium")


def _read(path: Path, step: int | None) -> _Traced:
    """Reads the kernels that begin in the step; without `step`, in the last step of the trace."""
    text = read_text(path, MOST_TRACE_NBYTES, UsageError)
    try:
        events = [_event(one) for one in parse(text, path, UsageError)["traceEvents"] if one.get("ph") == "X"]
        steps = {int(number[1]): one for one in events if (number := STEP.fullmatch(one.name))}
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise UsageError(f"{path}: not a trace that can be read ({type(error).__name__}: {error})") from None
    if step is not None and step not in steps:
        raise UsageError(f"step {step}: {path} has steps {', '.join(map(str, sorted(steps))) or 'none'}")
    if steps:
        chosen = steps[max(steps) if step is None else step]
        found = _Traced(chosen.at_us, chosen.at_us + chosen.for_us)
    else:
        found = _Traced(0.0, max((one.at_us + one.for_us for one in events), default=0.0))
    for one in events:
        lane = _lane(one)
        if lane is not None and found.begin_us <= one.at_us < found.end_us:
            found.spans[lane].append((one.at_us, one.for_us))
    return found


def _event(given: Mapping[str, Any]) -> _Event:
    """Reads an event of the trace. A missing key or a value of another type raises its usual exception."""
    event = _Event(str(given["name"]), given.get("cat"), float(given["ts"]), float(given["dur"]))
    if not math.isfinite(event.at_us) or not math.isfinite(event.for_us):
        raise ValueError("an event without an end")
    return event


def _lane(event: _Event) -> str | None:
    match event.category:
        case "kernel":
            return "communication" if event.name.startswith("nccl") else "compute"
        case "gpu_memcpy" | "gpu_memset":
            return "copies"
    return None
