"""The report as text for a terminal, or without colours for a file. Made of the JSON document alone."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from io import StringIO
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from phantora_async.report.document import MOST_WARNINGS
from phantora_async.report.memory import memory_notes
from phantora_async.report.reasons import reasons_notes
from phantora_async.report.routing import routing_notes
from phantora_async.report.stated_values import stated_notes
from phantora_async.wording import printable

ALL_RANKS = 16
"""Up to this many ranks, each has a row. Of more ranks the table shows quantiles and the busiest ones."""
BUSIEST = 3
WARNINGS = 10
"""How many are shown. The JSON report has all."""
TITLE = 62
"""Width of the column that names GPU work, where there is room."""
FIGURES = 64
"""Width of the columns before it."""
LEAST_UNKNOWN = 0.005
"""A smaller share of the GPU time is not worth a remark."""
KERNELS = 20
"""How many signatures are listed. The JSON report has all."""
LEAST_SHARE = 0.01
"""Work that is not recognised is named if it takes such a share of the GPU time."""
EXAMPLE = 160
"""How many characters of a signature are shown."""
COLUMNS = (
    ("compute", "compute_ns"),
    ("transfer", "transfer_ns"),
    ("peers", "peers_ns"),
    ("host-bound", "host_bound_ns"),
    ("idle", "idle_ns"),
)
MISSING = 3
"""So many kernels without a measured time are named ..."""
MATTERS = 0.01
"""... if they take this share of the GPU time together."""
SOURCES = {"measured": ".0%", "interpolated": ".0%", "roofline": ".0%", "unrecognised": ".1%"}
Rank = Mapping[str, Any]


def terminal_report(document: Mapping[str, Any], rank: int | None = None) -> str:
    """Tables and notes, coloured if stdout is a terminal. `rank`: whose kernels to list; None: those of all ranks."""
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
    console.print(_heading(simulated), soft_wrap=True)
    console.print(_step(simulated["step"], simulated["work"], simulated["host"]), soft_wrap=True, highlight=False)
    console.print(_ranks(simulated["ranks"]))
    if simulated["kernels"]["gpu_ns"]:
        console.print(_kernels(simulated["kernels"], rank, console.width))
    for note in reasons_notes(simulated["reasons"]) if "reasons" in simulated else []:
        console.print(note, markup=False, highlight=False, soft_wrap=True)
    for note in notes(document):
        console.print(note, markup=False, highlight=False, soft_wrap=True)
    console.print(_simulator(document["simulator"]), markup=False, highlight=False, soft_wrap=True)
    return out.getvalue().rstrip()


def notes(document: Mapping[str, Any]) -> list[str]:
    """What else there is to say, warnings among it."""
    return _notes(document["simulated"]) + _early(document["simulator"])


def _printable(document: Any) -> Any:
    """The same document, whose texts no terminal obeys: names and messages of the script are among them."""
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
        f"{seconds(simulated['virtual_ns'])} simulated, {simulated['collectives']} collectives",
    )


def _step(step: Mapping[str, Any], work: Mapping[str, Any], host: str) -> Text:
    text = ""
    if step["counted"] > 1:
        text += f" (median of {step['counted']} steps, {seconds(step['min_ns'])} to {seconds(step['max_ns'])}"
        text += f", the first {step['warm_up']} not counted)" if step["warm_up"] else ")"
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


def _kernels(kernels: Mapping[str, Any], rank: int | None, width: int) -> Table:
    """The signatures that take most GPU time, alone: without what NCCL kernels beside them cost."""
    signatures = kernels["signatures"]
    launches = [one["launches"] for one in signatures]
    if rank is not None:
        launches = next((group["launches"] for group in kernels["ranks"] if rank in group["ranks"]), [])
    times = [(count * one["mean_ns"], count, one) for count, one in zip(launches, signatures, strict=True) if count]
    gpu_ns = sum(for_ns for for_ns, _, _ in times)
    times.sort(key=lambda row: -row[0])
    whose = "all ranks" if rank is None else f"rank {rank}"
    since = "steps that count" if kernels["window"] == "steps" else "whole run"
    room = max(TITLE // 3, min(TITLE, width - FIGURES))
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in ("share", "total", "launches", "mean"):
        table.add_column(column, justify="right", no_wrap=True)
    table.add_column("source", no_wrap=True)
    table.add_column("bound by", no_wrap=True)
    table.add_column(f"GPU work of {whose}, {since}", no_wrap=True, overflow="ellipsis", max_width=room)
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


def _measured(simulated: Mapping[str, Any]) -> list[str]:
    """Which measured times were used, and what GPU work takes most time without any."""
    notes = []
    for times in simulated.get("kernel_times", []):
        how = f"carried over from {times['gpu']} by the models' ratio" if times["carried_over"] else times["gpu"]
        notes.append(f"measured times: {times['file']}, {times['signatures']:,} kernels, {how}")
    if not notes:
        return []
    estimated = [one for one in simulated["kernels"]["signatures"] if one["source"] != "measured"]
    estimated = sorted(estimated, key=lambda one: -one["share"])[:MISSING]
    if sum(one["share"] for one in estimated) >= MATTERS:
        listed = ", ".join(f"{one['title']} ({one['share']:.1%})" for one in estimated)
        notes.append(f"most GPU time without a measured one: {listed}; see phantora-async profile --missing")
    return notes


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


def _unrecognised(reasons: Sequence[Mapping[str, Any]]) -> list[str]:
    """Signatures whose cost is an estimate because the cost model does not recognise them. Those that hardly take time
    are summed up in one line.
    """
    notes = []
    large = sorted(
        (one for one in reasons if one.get("share", 1.0) >= LEAST_SHARE), key=lambda one: -one.get("share", 1)
    )
    small = [one for one in reasons if one.get("share", 1.0) < LEAST_SHARE]
    for one in large[:WARNINGS]:
        count = f"{one['signatures']} cost signatures are" if one["signatures"] > 1 else "1 cost signature is"
        what = f"{count} not recognised ({one['reason']}) and estimated"
        if "share" in one:
            what += f", {one['share']:.0%} of the GPU time"
        notes.append(f"warning: {what}: {one['example'][:EXAMPLE]}")
    if len(large) > WARNINGS:
        notes.append(f"{len(large) - WARNINGS} more reasons in the JSON report")
    if small:
        count = sum(one["signatures"] for one in small)
        what = f"{count} cost signatures are" if count > 1 else "1 cost signature is"
        total = sum(one["share"] for one in small)
        notes.append(f"{what} not recognised and estimated, {total:.1%} of the GPU time; the JSON report lists them")
    return notes


def _logged(rates: Sequence[Mapping[str, Any]]) -> list[str]:
    if not rates:
        return []
    return [f"rank {rates[0]['rank']}'s script logged last: {', '.join(one['text'] for one in rates)}"]


def _notes(simulated: Mapping[str, Any]) -> list[str]:
    sources = simulated["cost_sources"]
    shares = ", ".join(f"{sources[name]:{form}} {name}" for name, form in SOURCES.items() if name in sources)
    notes = [f"kernel times: {shares}"] if sources["gpu_ns"] else []
    notes += _measured(simulated)
    notes += _logged(simulated.get("logged", []))
    notes += memory_notes(simulated["memory"]) if "memory" in simulated else []
    if slowed_ns := simulated["kernels"].get("slowed_ns", 0):
        full_clock_ns = simulated["kernels"]["gpu_ns"] - slowed_ns
        notes.append(
            f"the GPUs' power limit makes GPU work {slowed_ns / full_clock_ns:.1%} longer than at the full clock"
        )
    for restart in simulated.get("restarts", []):
        end = f"rank {restart['rank']} ended with exit code {restart['exit_code']}"
        notes.append(f"restart: {end}; its launcher started the ranks again at {seconds(restart['at_ns'])}")
    notes += _unrecognised(sources.get("unrecognised_signatures", []))
    if any(rank["window"] == "run" for rank in simulated["ranks"]):
        notes.append("for ranks without two optimizer steps, shares are of the whole run")
    if simulated["unmodelled_reads"]:
        stated = any(one["reads"] for one in simulated.get("stated_values", []))
        what = "0 was read, or what --value states" if stated else "0 was read"
        notes.append(f"{simulated['unmodelled_reads']} reads of values that were not computed ({what})")
    if simulated["refused_calls"]:
        notes.append(f"{simulated['refused_calls']} calls were refused as not supported")
    notes += stated_notes(simulated.get("stated_values", []))
    notes += routing_notes(simulated["routing"]) if "routing" in simulated else []
    for warning in simulated["warnings"][:WARNINGS]:
        who = "rank" if len(warning["ranks"]) == 1 else f"{len(warning['ranks'])} ranks, first"
        notes.append(f"warning ({who} {warning['ranks'][0]}): {warning['text']}")
    more = len(simulated["warnings"]) - WARNINGS + simulated["warnings_left_out"]
    if more > 0:
        notes.append(f"{more} more warnings in the ranks' logs; the JSON report has up to {MOST_WARNINGS}")
    return notes


def _early(simulator: Mapping[str, Any]) -> list[str]:
    """Answers of ``--clock optimistic`` that were wrong."""
    told = simulator["speculation"]
    if not told["early_answers"]:
        return []
    revised, early = told["revised_answers"], told["early_answers"]
    text = f"optimistic clock: {revised} of {early} answers that were given early were wrong"
    if times := revised - told["revised_states"]:
        error = f"by up to {seconds(told['revised_max_ns'])}, {seconds(told['revised_sum_ns'])} in total"
        text += f"; {times} of them clock values or durations, {error}"
    if told["revised_states"]:
        text += f"; {told['revised_states']} of them whether work was done"
    return [text]


def _simulator(simulator: Mapping[str, Any]) -> str:
    text = f"simulator: {simulator['wall_s']:.1f} s; coordinator: {simulator['coordinator_cpu_s']:.1f} s of CPU time, "
    text += f"{simulator['coordinator_peak_rss_nbytes'] / 1e6:.0f} MB"
    private, used = simulator["rank_private_nbytes"], simulator.get("rank_cpu")
    if used and used["ranks"]:
        text += f"; CPU time per rank: {(used['user_s'] + used['system_s']) / used['ranks']:.1f} s"
    if private:
        text += f"; private memory per rank: {private['median'] / 1e6:.0f} MB (largest {private['max'] / 1e6:.0f} MB)"
    kept = simulator.get("kept")
    if kept and kept["peak_nbytes"] >= 1e6:
        text += f"; kept to be read back, for all ranks: {kept['peak_nbytes'] / 1e6:,.0f} MB"
    if kept and kept["refused_nbytes"]:
        text += (
            f", limit {kept['limit_nbytes'] / 1e6:,.0f} MB: {kept['refused_nbytes'] / 1e6:,.0f} MB more were not kept"
        )
    return text


def seconds(for_ns: int) -> str:
    """With at least three significant digits: ``1.234 s``, ``12.34 ms``, ``456.7 µs``."""
    if for_ns >= 1_000_000_000:
        return f"{for_ns / 1e9:.3f} s"
    if for_ns >= 1_000_000:
        return f"{for_ns / 1e6:.{2 if for_ns < 100_000_000 else 1}f} ms"
    return f"{for_ns / 1e3:.1f} µs"


def peak(nbytes: float) -> str:
    """A rank that has allocated nothing, or that was ended before it told its memory, has no peak."""
    return gib(nbytes) if nbytes else "-"


def gib(nbytes: float) -> str:
    return f"{nbytes / 2**30:.2f} GiB"
