"""The report as tables: rows of one kind each, for DataFrames, spreadsheets and Markdown."""

from __future__ import annotations

import csv
import dataclasses
import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from phantora_async.errors import EnvironmentUnusable, UsageError
from phantora_async.figures import ALLOCATED, MFU, RESERVED, STEP_TIME, TIME_ACCOUNTS
from phantora_async.figures.time_accounts import shown_accounts
from phantora_async.report.gpu_work import work_window
from phantora_async.report.loading import loading_binds
from phantora_async.report.memory import ORDER, memory_notes
from phantora_async.report.text import what_binds
from phantora_async.wording import launches_text, markdown, markdown_code, seconds, size

if TYPE_CHECKING:
    import pandas

    from phantora_async.api.results import Kernel, KernelFamily, Run

Table = Literal["figures", "steps", "ranks", "families", "kernels", "memory", "collectives", "reasons"]
MOST_FAMILIES = 8
MOST_KERNELS = 10
"""The most rows of GPU work in a report in Markdown."""
WORK_TITLES = ("share", "time", "launches", "mean")


@dataclass(frozen=True, slots=True)
class Figures:
    """The whole run in one row."""

    script: str
    world_size: int
    gpu: str
    cluster: str
    fits: bool | None
    step_time: float | None
    """Seconds; None: the run failed before it had steps."""
    interval_low: float | None
    interval_high: float | None
    mfu: float
    tflops_per_gpu: float
    tokens_per_second: float | None
    peak_memory: int
    peak_reserved: int
    exit_code: int


@dataclass(frozen=True, slots=True)
class MemoryPart:
    """One part of the memory that one rank's GPU holds at its peak."""

    rank: int
    part: str
    nbytes: int


@dataclass(frozen=True, slots=True)
class Collective:
    """A kind of collective in the step that `--reasons` explains, of all ranks together."""

    title: str
    calls: int
    time: float
    """Seconds, summed over all GPUs, in which its kernels were resident."""
    waiting: float
    """The seconds of ``time`` in which its kernels waited for other ranks."""
    on_path: float
    """Seconds on the critical path."""


@dataclass(frozen=True, slots=True)
class Reason:
    """A part of the explained step's critical path."""

    kind: str
    name: str
    doing: str
    time: float
    share: float


def rows_of(run: Run, table: Table) -> tuple[type[Any], Sequence[Any]]:
    """The table's dataclass and its rows. Raises UsageError for an unknown table."""
    from phantora_async.api.results import Kernel, KernelFamily, Rank, Step

    kinds: dict[str, tuple[type[Any], Callable[[], Sequence[Any]]]] = {
        "figures": (Figures, lambda: [_figures(run)]),
        "steps": (Step, lambda: run.steps),
        "ranks": (Rank, lambda: run.ranks),
        "families": (KernelFamily, lambda: run.families),
        "kernels": (Kernel, lambda: run.kernels),
        "memory": (MemoryPart, lambda: _memory(run)),
        "collectives": (Collective, lambda: _collectives(run)),
        "reasons": (Reason, lambda: _reasons(run)),
    }
    if table not in kinds:
        raise UsageError(f"table: expected one of {', '.join(kinds)}, found {table!r}")
    kind, rows = kinds[table]
    return kind, rows()


def data_frame(kind: type[Any], rows: Sequence[Any]) -> pandas.DataFrame:
    """Dataclasses of one kind as a table. Raises EnvironmentUnusable without pandas."""
    try:
        import pandas
    except ImportError:
        raise EnvironmentUnusable("tables need pandas, which is not installed", "pip install pandas") from None
    names = _columns(kind)
    return pandas.DataFrame([[getattr(row, name) for name in names] for row in rows], columns=names)


def as_csv(run: Run, table: Table) -> str:
    kind, rows = rows_of(run, table)
    names = _columns(kind)
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(names)
    writer.writerows([getattr(row, name) for name in names] for row in rows)
    return out.getvalue()


def as_markdown(run: Run) -> str:
    """The report in Markdown for an issue, a pull request or a wiki: the figures, ranks, memory of the fullest rank,
    and kernels.
    """
    parts = [f"# {markdown(run.script) or 'Report'}", _markdown(["", ""], summary(run))]
    if run.used_gpu:
        accounts = shown_accounts({one.name: getattr(rank, one.name) for one in TIME_ACCOUNTS} for rank in run.ranks)
        ranks = [
            (
                rank.rank,
                *(f"{getattr(rank, account.name):.1%}" for account in accounts),
                size(rank.allocated_peak),
                size(rank.reserved_peak),
            )
            for rank in run.ranks
        ]
        parts.append(_markdown(["rank", *(account.title for account in accounts), "allocated", "reserved"], ranks))
        if held := run.memory_parts:
            in_order = {name: held[name] for name in ORDER if name in held} | held
            parts.append(
                _markdown(["fullest GPU holds", "size"], [(name, size(nbytes)) for name, nbytes in in_order.items()])
            )
        where = f"GPU work of {work_window(run.report['simulated'])}"
        families = [(*_work_cells(one), one.family) for one in run.families[:MOST_FAMILIES]]
        parts.append(_markdown([*WORK_TITLES, f"{where}, by family"], families))
        kernels = [
            (*_work_cells(one), one.source, one.bound, Code(one.title), Code(one.line) if one.line else "")
            for one in run.kernels[:MOST_KERNELS]
        ]
        titles = [*WORK_TITLES, "source", "bound by", "the kernels that take most of it", "line"]
        parts.append(_markdown(titles, kernels))
    return "\n\n".join(part for part in parts if part) + "\n"


def _work_cells(one: Kernel | KernelFamily) -> tuple[str, ...]:
    return f"{one.share:.1%}", _seconds(one.time), launches_text(one.launches), _seconds(one.mean_time)


def summary(run: Run) -> list[tuple[str, str]]:
    """Titles and texts of the figures that matter most, for Markdown and notebooks."""
    rows = [("run", f"{run.world_size} x {run.gpu} on {run.cluster}")]
    if run.failure is not None:
        rows.append(("failed", run.failure))
    if run.jobs_note:
        rows.append(("jobs", run.jobs_note))
    if not run.used_gpu:
        return [*rows, ("GPU", "no emulated GPU was used")]
    rows.append(("fits", {True: "yes", False: "no", None: "not known"}[run.fits]))
    simulated = run.report["simulated"]
    rows += [("memory", note.removeprefix("memory: ")) for note in memory_notes(simulated.get("memory", {}))[:1]]
    if run.step_time is not None:
        rows.append((STEP_TIME.title, STEP_TIME.text(run.step_time)))
    if run.interval is not None:
        rows.append(("90% interval", " to ".join(map(STEP_TIME.text, run.interval))))
    if run.step_time is not None:
        rows.append(("bound by", what_binds(simulated, loading_binds(run.report.get("loading")))))
        rows.append((MFU.title, MFU.text(run.mfu)))
    rows.append((ALLOCATED.title, ALLOCATED.text(run.peak_memory)))
    return [*rows, (RESERVED.title, RESERVED.text(run.peak_reserved))]


class Code(str):
    """A cell that is shown as code."""


def _columns(kind: type[Any]) -> list[str]:
    return [field.name for field in dataclasses.fields(kind)]


def _markdown(titles: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    if not rows:
        return ""
    head, *others = [f"| {' | '.join(_cell(one) for one in line)} |" for line in (titles, *rows)]
    return "\n".join([head, f"|{' --- |' * len(titles)}", *others])


def _cell(value: Any) -> str:
    return markdown_code(value) if isinstance(value, Code) else markdown(str(value))


def _figures(run: Run) -> Figures:
    low, high = run.interval or (None, None)
    return Figures(
        script=run.script,
        world_size=run.world_size,
        gpu=run.gpu,
        cluster=run.cluster,
        fits=run.fits,
        step_time=run.step_time,
        interval_low=low,
        interval_high=high,
        mfu=run.mfu,
        tflops_per_gpu=run.tflops_per_gpu,
        tokens_per_second=run.tokens_per_second,
        peak_memory=run.peak_memory,
        peak_reserved=run.peak_reserved,
        exit_code=run.exit_code,
    )


def _memory(run: Run) -> list[MemoryPart]:
    return [
        MemoryPart(one["rank"], part, nbytes)
        for one in run.report["simulated"]["ranks"]
        for part, nbytes in one["memory"].get("parts", {}).items()
    ]


def _explained(run: Run) -> Any:
    """The explained step of the report. Raises UsageError if the run has no reasons."""
    found = run.report["simulated"].get("reasons", {"missing": "the run had no --reasons"})
    if found["missing"]:
        raise UsageError(f"the report tells no reasons: {found['missing']}", "run --reasons, or reasons=True")
    return found


def _collectives(run: Run) -> list[Collective]:
    listed = {one["title"]: one for kind in ("gpu", "path") for one in _explained(run)["collectives"][kind]}
    return [
        Collective(one["title"], one["calls"], one["gpu_ns"] / 1e9, one["waiting_ns"] / 1e9, one["path_ns"] / 1e9)
        for one in sorted(listed.values(), key=lambda one: -one["gpu_ns"])
    ]


def _reasons(run: Run) -> list[Reason]:
    found = _explained(run)
    return [
        Reason(one["kind"], one["name"], one["doing"], one["ns"] / 1e9, one["ns"] / max(found["ns"], 1))
        for one in found["parts"]
    ]


def _seconds(value: float) -> str:
    return seconds(round(value * 1e9))
