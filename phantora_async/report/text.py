"""The report as text for a terminal, or without colours for a file. Made of the JSON document alone."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from io import StringIO
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from phantora_async.report.loading import binding_note
from phantora_async.report.notes import notes, unused_notes, used_no_gpu
from phantora_async.report.reasons import reasons_notes
from phantora_async.report.steps import WHOLE_RUN, counted_steps, steps_named, window
from phantora_async.spending.text import spending_notes
from phantora_async.wording import gib, printable, seconds

ALL_RANKS = 16
"""Up to this many ranks, each has a row. Of more ranks the table shows quantiles and the busiest ones."""
BUSIEST = 3
TITLE = 62
"""Width of the column that names GPU work, where there is room."""
FIGURES = 64
"""Width of the columns before it."""
LEAST_UNKNOWN = 0.005
"""A smaller share of the GPU time is not worth a remark."""
KERNELS = 20
"""How many signatures are listed. The JSON report has all."""
COLUMNS = (
    ("compute", "compute_ns"),
    ("transfer", "transfer_ns"),
    ("peers", "peers_ns"),
    ("host-bound", "host_bound_ns"),
    ("idle", "idle_ns"),
)
Rank = Mapping[str, Any]


def terminal_report(document: Mapping[str, Any], rank: int | None = None, spent: Sequence[str] | None = None) -> str:
    """Tables and notes, coloured if stdout is a terminal. `rank`: whose kernels to list; None: those of all ranks.
    `spent`: lines on money and energy; None: what a step costs.
    """
    out = StringIO()
    terminal = sys.stdout.isatty()
    console = Console(file=out, force_terminal=terminal, no_color=not terminal, width=None if terminal else 110)
    document = _printable(document)
    simulated = document["simulated"]
    if (failure := document["failure"]) is not None:
        text = f"The run failed with exit code {document['exit_code']}:\n{failure['text']}\nUntil then:"
        console.print(text, markup=False, highlight=False, soft_wrap=True)
    elif (stopped := document.get("stopped")) is not None:
        console.print(stopped["text"], markup=False, highlight=False, soft_wrap=True)
    for note in unused_notes(simulated) if used_no_gpu(simulated) else []:
        console.print(note, markup=False, highlight=False, soft_wrap=True)
    console.print(_heading(simulated), soft_wrap=True)
    if not used_no_gpu(simulated):
        step = _step(simulated["step"], simulated["work"], simulated["host"])
        console.print(step, soft_wrap=True, highlight=False)
        if loading := binding_note(document.get("loading")):
            console.print(Text(loading, "bold"), soft_wrap=True, highlight=False)
        console.print(_ranks_caption(simulated), soft_wrap=True, highlight=False)
        console.print(_ranks(simulated["ranks"]))
    if simulated["kernels"]["gpu_ns"]:
        console.print(_kernels(simulated, rank, console.width))
    for note in reasons_notes(simulated["reasons"]) if "reasons" in simulated else []:
        console.print(note, markup=False, highlight=False, soft_wrap=True)
    for note in notes(document):
        console.print(note, markup=False, highlight=False, soft_wrap=True)
    for note in spending_notes(document) if spent is None else spent:
        console.print(note, markup=False, highlight=False, soft_wrap=True)
    console.print(_simulator(document["simulator"]), markup=False, highlight=False, soft_wrap=True)
    return out.getvalue().rstrip()


def _printable(document: Any) -> Any:
    """The document with texts that no terminal obeys: names and messages of the script are among them."""
    if isinstance(document, str):
        return printable(document)
    if isinstance(document, Mapping):
        return {key: _printable(value) for key, value in document.items()}
    if isinstance(document, list):
        return [_printable(value) for value in document]
    return document


def _heading(simulated: Mapping[str, Any]) -> Text:
    servers = len(simulated["servers"])
    return Text.assemble(
        (f"{simulated['world_size']} x {simulated['gpu']}", "bold"),
        f" on {servers} server{'s' * (servers != 1)} "
        f"({simulated['cluster']}), host {simulated['host']} ({simulated['host_mode']}); "
        f"whole run: {seconds(simulated['virtual_ns'])} simulated, {simulated['collectives']} collectives",
    )


def _step(step: Mapping[str, Any], work: Mapping[str, Any], host: str) -> Text:
    text = f" ({counted_steps(step)})"
    if step["counted"] > 1:
        text = f" (median of {counted_steps(step)}: {seconds(step['min_ns'])} to {seconds(step['max_ns'])})"
    if step["host_median_ns"] is not None:
        text += f", {seconds(step['host_median_ns'])} on the host"
    if work["flops"]:
        text += f"; {work['tflops_per_gpu']:.1f} TFLOP/s per GPU, MFU {work['mfu']:.1%}"
        if (unknown := work.get("unknown_share", 0.0)) >= LEAST_UNKNOWN:
            text += f" without kernels of {unknown:.0%} of the GPU time, whose FLOPs are not known"
    rest = f"{text}{_interval(step['interval'], host)}\nsteps from: {step['source']}"
    return Text.assemble((f"a step takes {seconds(step['median_ns'])}", "bold"), rest)


def _interval(found: Mapping[str, Any] | None, host: str) -> str:
    """The range of the step time and what it comes from."""
    if found is None:
        return ""
    text = f"\n{found['level']:.0%} interval: {seconds(found['low_ns'])} to {seconds(found['high_ns'])}"
    parts = [f"kernel times +-{found['kernel_error']:.0%}"]
    if found["host_slow"] > 1:
        parts.append(
            f"hosts like {host} take {found['host_fast']:.2f} to {found['host_slow']:.2f} of the modelled time"
        )
    text += f"\n  from: {'; '.join(parts)}"
    if found["bound"] != "gpu":
        bound = "host-bound" if found["bound"] == "host" else "host-bound on a slow host"
        low, high = seconds(round(found["host_low_ns"])), seconds(round(found["host_high_ns"]))
        text += f"\n{bound}: {low} to {high} of host work; calibrate your host with `phantora-async profile --host`"
    return text


def _ranks_caption(simulated: Mapping[str, Any]) -> str:
    """The windows of the table of ranks."""
    step, ranks = simulated["step"], simulated["ranks"]
    whole = sum(rank["window"] == "run" for rank in ranks)
    windows = {tuple(rank["counted_steps"]) for rank in ranks if rank.get("counted_steps")}
    if whole == len(ranks):
        since = WHOLE_RUN
    else:
        since = steps_named(*windows.pop()) if len(windows) == 1 else counted_steps(step)
        since += " (a rank without two optimizer steps: the whole run)" if whole else ""
        since += " (of each rank its own)" if windows else ""
    return f"GPU time in {since}; peaks of memory in the whole run"


def _ranks(ranks: Sequence[Rank]) -> Table:
    table = Table(title=None, box=None, pad_edge=False, header_style="bold")
    table.add_column("rank")
    for title, _ in COLUMNS:
        table.add_column(title, justify="right")
    table.add_column("allocated", justify="right")
    table.add_column("reserved", justify="right")
    if len(ranks) <= ALL_RANKS:
        for rank in ranks:
            table.add_row(str(rank["rank"]), *_cells(rank))
        return table
    for title, pick in (("min", 0.0), ("median", 0.5), ("max", 1.0)):
        table.add_row(title, *_quantiles(ranks, pick))
    for rank in sorted(ranks, key=_busy, reverse=True)[:BUSIEST]:
        table.add_row(f"{rank['rank']} (busiest)", *_cells(rank))
    return table


def _kernels(simulated: Mapping[str, Any], rank: int | None, width: int) -> Table:
    """The signatures that take most GPU time, alone: without what NCCL kernels beside them cost."""
    kernels = simulated["kernels"]
    signatures = kernels["signatures"]
    launches = [one["launches"] for one in signatures]
    if rank is not None:
        launches = next((group["launches"] for group in kernels["ranks"] if rank in group["ranks"]), [])
    times = [(count * one["mean_ns"], count, one) for count, one in zip(launches, signatures, strict=True) if count]
    gpu_ns = sum(for_ns for for_ns, _, _ in times)
    times.sort(key=lambda row: -row[0])
    whose = "all ranks" if rank is None else f"rank {rank}"
    since = window(simulated, kernels["window"])
    room = max(TITLE // 3, min(TITLE, width - FIGURES))
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in ("share", "total", "launches", "mean"):
        table.add_column(column, justify="right", no_wrap=True)
    table.add_column("source", no_wrap=True)
    table.add_column("bound by", no_wrap=True)
    table.add_column(f"GPU work of {whose} in {since}", no_wrap=True, overflow="ellipsis", max_width=room)
    for for_ns, count, one in times[:KERNELS]:
        cells: tuple[str | Text, ...] = (
            f"{for_ns / gpu_ns:.1%}",
            seconds(for_ns),
            f"{count:,}",
            seconds(one["mean_ns"]),
            Text(one["source"]),
            Text(one.get("bound", "")),
        )
        table.add_row(*cells, Text(one["title"]))
    if len(times) > KERNELS:
        rest_ns = sum(for_ns for for_ns, _, _ in times[KERNELS:])
        table.add_row(f"{rest_ns / gpu_ns:.1%}", seconds(rest_ns), "", "", "", "", f"{len(times) - KERNELS} others")
    return table


def _busy(rank: Rank) -> float:
    return share(rank, "compute_ns")


def _cells(rank: Rank) -> list[str]:
    cells = [f"{share(rank, key):.1%}" for _, key in COLUMNS]
    told = [rank["memory"][key] for key in ("allocated_peak_nbytes", "reserved_peak_nbytes")]
    return cells + [peak(nbytes) for nbytes in told]


def _quantiles(ranks: Sequence[Rank], at: float) -> list[str]:
    def value(values: list[float]) -> float:
        return sorted(values)[round(at * (len(values) - 1))]

    cells = [f"{value([share(rank, key) for rank in ranks]):.1%}" for _, key in COLUMNS]
    for key in ("allocated_peak_nbytes", "reserved_peak_nbytes"):
        cells.append(peak(value([rank["memory"][key] for rank in ranks])))
    return cells


def share(rank: Rank, key: str) -> float:
    """The share of the rank's window; all GPUs of a rank together."""
    total = sum(rank[other] for _, other in COLUMNS)
    return float(rank[key]) / total if total else 0.0


def _simulator(simulator: Mapping[str, Any]) -> str:
    text = f"simulator: {simulator['wall_s']:.1f} s; coordinator: {simulator['coordinator_cpu_s']:.1f} s of CPU time, "
    text += f"{simulator['coordinator_peak_rss_nbytes'] / 1e6:.0f} MB"
    private, used = simulator["rank_private_nbytes"], simulator.get("rank_cpu")
    if used and used["ranks"]:
        text += f"; CPU time per rank: {(used['user_s'] + used['system_s']) / used['ranks']:.1f} s"
    if private:
        text += f"; private memory per rank: {private['median'] / 1e6:.0f} MB (largest {private['max'] / 1e6:.0f} MB"
        text += f", {private['ranks']} measured)" if "ranks" in private else ")"
    kept = simulator.get("kept")
    if kept and kept["peak_nbytes"] >= 1e6:
        limit = f"limit {kept['limit_nbytes'] / 1e6:,.0f} MB"
        text += f"; kept to be read back, for all ranks: {kept['peak_nbytes'] / 1e6:,.0f} MB ({limit})"
    if kept and kept["refused_nbytes"]:
        text += f"; {kept['refused_nbytes'] / 1e6:,.0f} MB more were not kept and read as 0"
    return text


def peak(nbytes: float) -> str:
    """A rank that has allocated nothing, or that was ended before it told its memory, has no peak."""
    return gib(nbytes) if nbytes else "-"
