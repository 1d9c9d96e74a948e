"""Writes the report as text for a terminal, or without colours for a file, from the JSON document alone."""

from __future__ import annotations

import functools
import sys
from collections.abc import Iterable, Mapping, Sequence
from io import StringIO
from typing import TYPE_CHECKING, Any

from phantora_async.figures import HOST_WORK, IN_SENTENCES, TIME_ACCOUNTS, WHOLE_RUN, TimeAccount, has_steps
from phantora_async.figures.time_accounts import HOST, IDLE, LEAST_SHOWN, shown_accounts
from phantora_async.report.gpu_work import WorkRow, beside_kernels, family_rows, kernel_rows, work_window
from phantora_async.report.jobs import jobs_note
from phantora_async.report.loading import binding_note, loading_binds
from phantora_async.report.memory import memory_notes
from phantora_async.report.notes import notes, unused_notes, used_no_gpu
from phantora_async.report.reasons import reasons_notes
from phantora_async.report.steps import counted_steps, steps_named, why_untimed
from phantora_async.spending.text import spending_notes
from phantora_async.wording import launches_text, printable, seconds, size

if TYPE_CHECKING:  # where tables are made, rich is imported: it takes longer than a short report
    from rich.console import Console
    from rich.table import Table

LEAST_SAVED = 0.02
"""The share of a step that a faster resource must save to count as binding."""
UNBOUNDED = 10_000
"""The columns of an output that is no terminal: nothing is cut there."""
ALL_RANKS = 16
FEW_RANKS = 8
"""The rows of the table of ranks in a verbose report and in a short one."""
BUSIEST = 3
LEAST_TITLE = 20
"""The width of the column that names GPU work on the narrowest terminal."""
FIGURES = 64
"""The width of the columns before it."""
KERNELS = 20
FEW_KERNELS = 5
"""The rows of single kernels in a verbose report and in a short one. The JSON report has all."""
FAMILIES = 12
FEW_FAMILIES = 5
"""The rows of families of GPU work in a verbose report and in a short one."""
ALIKE = 0.75
"""The share of the GPU's time from which a host's work is as long, within what is known of hosts: neither a faster GPU
nor a faster host alone makes the step much shorter then.
"""
SOURCES = (
    ("measured", "measured"),
    ("interpolated", "interpolated"),
    ("modelled", "roofline"),
    ("not recognised", "unrecognised"),
)
"""The sources of kernel times, in words."""
RATES = ("tokens/s", "samples/s", "images/s")
LEAST_UNKNOWN = 0.005
"""The share of the GPU time below which unknown work has no remark."""
LEAST_ASSUMED = 0.02
"""The share of the GPU time below which assumed work is not named beside the step time."""
LEAST_UNEVEN = 0.05
"""The share of the median step by which the mean must differ to be named, too."""
Rank = Mapping[str, Any]


def terminal_report(
    document: Mapping[str, Any], rank: int | None = None, spent: Sequence[str] | None = None, verbose: bool = False
) -> str:
    """The verdict in three lines, tables and warnings, coloured if stdout is a terminal. `rank`: list the kernels of
    this rank; None: of all ranks. `spent`: lines on money and energy; None: the cost of a step. `verbose`: show all
    notes and longer tables.
    """
    out = _Output()
    say = out.say
    document = _printable(document)
    simulated = document["simulated"]
    does_not_fit = not simulated.get("memory", {}).get("verdict", {"fits": True})["fits"]
    verdict = [] if used_no_gpu(simulated) else _verdict(document)
    # Memory that does not fit comes first, before the failure that follows from it. All else was known until then.
    if does_not_fit:
        say(*verdict[:1])
    known = verdict[does_not_fit:]
    if (failure := document["failure"]) is not None:
        why, _, further = failure["text"].partition("\n")
        say(f"The run failed with exit code {document['exit_code']}: {why}")
        known = until_then(known)
    # Without an emulated GPU every figure below is empty: the reader is told before any of them.
    say(*(unused_notes(simulated) if used_no_gpu(simulated) else []))
    for line in known:
        out.say_bold(line)
    if failure is not None and further:
        say(further)
    if loading := binding_note(document.get("loading")):
        out.say_bold(loading)
    if failure is None and (stopped := document.get("stopped")) is not None:
        say(stopped["text"])
    say(_heading(simulated))
    if not used_no_gpu(simulated):
        say(*(_step_details(simulated["step"], simulated["host"]) if verbose else []))
        say(*_host_bound(simulated["step"]), _ranks_caption(simulated))
        out.show(_ranks(simulated["ranks"], ALL_RANKS if verbose else FEW_RANKS))
    if simulated["kernels"]["gpu_ns"]:
        for table in _gpu_work(simulated, rank, out.width, verbose):
            out.show(table)
    say(*(reasons_notes(simulated["reasons"]) if "reasons" in simulated else []))
    say(*notes(document, verbose))
    if verbose and (memory := memory_notes(simulated.get("memory", {}))):
        say("memory:", *memory[1:])  # the first one is part of the verdict
    say(*(spending_notes(document) if spent is None else spent))
    simulator = document["simulator"]
    if verbose or (simulator.get("kept") or {"refused_nbytes": 0})["refused_nbytes"]:
        say(_simulator(simulator))
    return "\n".join(line.rstrip() for line in str(out).rstrip().splitlines())


def verdict_until_failure(document: Mapping[str, Any]) -> list[str]:
    """The verdict on the steps before a run failed, without the line on memory that does not fit; empty if there were
    no steps.
    """
    document = _printable(document)
    simulated = document["simulated"]
    if used_no_gpu(simulated) or not has_steps(simulated["step"]):
        return []
    return until_then(_verdict(document)[not simulated["memory"]["verdict"]["fits"] :])


def until_then(verdict: Sequence[str]) -> list[str]:
    return [f"until then: {line}" if not place else line for place, line in enumerate(verdict)]


def _printable(document: Any) -> Any:
    """The document with texts that a terminal only prints: names and messages of the script are among them. Parts
    without others are the document's own: those of thousands of ranks are not copied.
    """
    if isinstance(document, str):
        changed = printable(document)
        return document if changed == document else changed
    if isinstance(document, Mapping) and (others := _changed(document.items())):
        return {**document, **others}
    if isinstance(document, list) and (others := _changed(enumerate(document))):
        return [others.get(place, value) for place, value in enumerate(document)]
    return document


def _changed(values: Iterable[tuple[Any, Any]]) -> dict[Any, Any]:
    """The values that a terminal would not only print, as it would, by their keys."""
    return {
        key: changed
        for key, value in values
        if type(value) not in _NUMBERS and (changed := _printable(value)) is not value
    }


def _verdict(document: Mapping[str, Any]) -> list[str]:
    """The lines for a run that used GPUs: whether it fits, how long a step takes, what binds it, and how certain that
    is.
    """
    simulated = document["simulated"]
    lines = [_memory(simulated), _step(simulated), _bound(simulated, loading_binds(document.get("loading")))]
    jobs = jobs_note(simulated)
    return [*lines, jobs] if jobs else lines


_NUMBERS = (int, float, bool, type(None))
_ACCOUNTS = {account.name: account.ns for account in TIME_ACCOUNTS}


def shares(rank: Rank) -> dict[str, float]:
    """The share of the rank's window by account; all GPUs of a rank together."""
    times = {name: rank.get(key, 0) for name, key in _ACCOUNTS.items()}
    total = sum(times.values())
    return {name: float(time_ns) / total if total else 0.0 for name, time_ns in times.items()}


def shares_of(ranks: Sequence[Rank]) -> list[dict[str, float]]:
    """The shares of each rank. Those of ranks with the same times are one object."""
    known: dict[tuple[int, ...], dict[str, float]] = {}
    found = []
    for rank in ranks:
        times = tuple([rank.get(key, 0) for key in _ACCOUNTS.values()])
        if times not in known:
            known[times] = shares(rank)
        found.append(known[times])
    return found


def accounts_of(each: Sequence[Mapping[str, float]]) -> list[TimeAccount]:
    """The accounts that a table of ranks with these shares shows."""
    return shown_accounts({id(one): one for one in each}.values())


def _memory(simulated: Mapping[str, Any]) -> str:
    if notes := memory_notes(simulated.get("memory", {})):
        return notes[0]
    most = max(rank["memory"]["allocated_peak_nbytes"] for rank in simulated["ranks"])
    if not most:
        return "memory: no use of GPU memory was reported"
    return f"memory: up to {size(most)} allocated on a GPU; the report does not tell whether it fits"


def _step(simulated: Mapping[str, Any]) -> str:
    step, work, found = simulated["step"], simulated["work"], simulated["step"]["interval"]
    if not has_steps(step):
        text = f"{why_untimed(step)}: the whole run takes {_at_least(simulated)}{seconds(step['median_ns'])}"
    else:
        median = "median of " * (step["counted"] > 1)
        text = f"a step takes {_at_least(simulated)}{seconds(step['median_ns'])} ({median}{counted_steps(step)})"
        mean_ns = step.get("mean_ns", step["median_ns"])
        if abs(mean_ns - step["median_ns"]) > LEAST_UNEVEN * step["median_ns"]:
            text += f", {seconds(mean_ns)} in the mean: {seconds(step['min_ns'])} to {seconds(step['max_ns'])}"
        if turn := step.get("turn_ns"):
            each = ", ".join(map(seconds, turn))
            text += f"; steps come in turns of {len(turn)}: {each}, {seconds(sum(turn))} together"
    if found is not None:
        text += f"; {found['level']:.0%} interval: {seconds(found['low_ns'])} to {seconds(found['high_ns'])}"
    text += _assumed(simulated["cost_sources"]) + _read(simulated.get("read_attributes", []))
    if work["flops"]:
        text += f"; {work['tflops_per_gpu']:.1f} TFLOP/s per GPU, MFU {work['mfu']:.1%}"
        if (unknown := work.get("unknown_share", 0.0)) >= LEAST_UNKNOWN:
            text += f" without kernels of {unknown:.0%} of the GPU time, whose FLOPs are not known"
    logged = [one["text"] for one in simulated.get("logged", []) if one.get("rate") in RATES]
    return text + (f"; the script logged {logged[0]}" if logged else "")


def _at_least(simulated: Mapping[str, Any]) -> str:
    """Returns "at least " if kernels were launched whose operands' sizes nobody knows: their cost is a lower bound,
    however small their share of the GPU time is.
    """
    reasons = simulated["cost_sources"].get("unrecognised_signatures", [])
    return "at least " * any(one.get("at_least") for one in reasons)


def _read(attributes: Sequence[Mapping[str, Any]]) -> str:
    """Names a property of the GPU that the script itself read and that is different here: it might have gone another
    way.
    """
    if not attributes:
        return ""
    first, names = attributes[0], dict.fromkeys(one["attribute"] for one in attributes)
    others = f" (also {', '.join(list(names)[1:])})" if names.keys() - {first["attribute"]} else ""
    return (
        f"; as recorded, though the script read the GPU's {first['attribute']} at {first['line']}: {first['then']} "
        f"then, {first['now']} here{others}"
    )


def _assumed(sources: Mapping[str, Any]) -> str:
    """Names the share of the GPU time that no model knows, for the line with the step time that depends on it."""
    part = sources.get("unrecognised", 0.0)
    if not sources["gpu_ns"] or part < LEAST_ASSUMED:
        return ""
    reasons = [one for one in sources.get("unrecognised_signatures", []) if one.get("share", 0.0)]
    largest = max(reasons, key=lambda one: one["share"], default=None)
    why = f" ({largest['reason']})" if largest else ""
    return f"; {part:.0%} of the GPU time is assumed{why}, and the interval is wider for it"


def _bound(simulated: Mapping[str, Any], by_loading: bool) -> str:
    """The line on what binds a step. Shares are means over ranks."""
    shares = _mean_shares(simulated)
    shown = ", ".join(f"{account.title} {part:.1%}" for account, part in shares if part >= LEAST_SHOWN)
    text = f"bound by {what_binds(simulated, by_loading)}"
    if shown and _explained(simulated, by_loading):
        shown = f"GPUs' time: {shown}"
    text += f" ({shown})" if shown else ""
    sources = simulated["cost_sources"]
    if sources["gpu_ns"]:
        sourced = [f"{sources[key]:.1%} {name}" for name, key in SOURCES if sources.get(key, 0.0) >= LEAST_SHOWN]
        text += f"; kernel times: {', '.join(sourced)}"
    return text


def what_binds(simulated: Mapping[str, Any], by_loading: bool) -> str:
    """Names what would make a step shorter, and behind a colon how much of it: ``the host: twice as fast, that saves
    12.7% of the step``. The critical path decides where the report has reasons.
    """
    if _explained(simulated, by_loading):
        return _what_helps(simulated["reasons"])
    return _what_binds(_mean_shares(simulated), simulated, by_loading)


def _explained(simulated: Mapping[str, Any], by_loading: bool) -> bool:
    reasons = simulated.get("reasons")
    return bool(not by_loading and reasons and not reasons["missing"] and reasons["what_if"])


def _mean_shares(simulated: Mapping[str, Any]) -> list[tuple[TimeAccount, float]]:
    ranks: Sequence[Rank] = simulated["ranks"]
    each = shares_of(ranks)
    return [(account, sum(one[account.name] for one in each) / len(ranks)) for account in TIME_ACCOUNTS]


def _what_binds(shares: Sequence[tuple[TimeAccount, float]], simulated: Mapping[str, Any], by_loading: bool) -> str:
    """Names what would make the step shorter, for a run without reasons: the GPU's time against the host's own work. A
    step is never shorter than the longer one of them, however busy the other is.
    """
    if by_loading:
        return "data loading"
    found = simulated["step"]["interval"]
    causes = dict.fromkeys((account.cause for account, _ in shares), 0.0)
    for account, part in shares:
        causes[account.cause] += part
    most = max(causes, key=lambda name: causes[name])
    host_s = HOST_WORK.value(simulated)
    step_s = simulated["step"]["median_ns"] / 1e9
    if found is None or not host_s or not step_s or most == IDLE:
        return HOST if found is not None and found["bound"] == "host" else most
    gpu_s = step_s * (1 - causes[HOST])
    works = f"its work takes {_of_step(host_s, step_s)}"
    if most == HOST or found["bound"] == "host" or host_s >= gpu_s:
        return f"{HOST}: {works}, the GPU's {_of_step(gpu_s, step_s)}"
    if host_s >= ALIKE * gpu_s:
        text = f"{HOST} and {most} alike: the host's work takes {_of_step(host_s, step_s)}"
        return f"{text}, so faster GPUs or links save {1 - host_s / step_s:.0%} at most"
    return most


def _of_step(part_s: float, step_s: float) -> str:
    return f"{min(part_s / step_s, 1.0):.0%} of the step"


def _what_helps(reasons: Mapping[str, Any]) -> str:
    """Names the resource that would shorten the step most. It need not be the one that takes most of the GPUs' time: a
    GPU that computes for 85 % of a step may still wait for the host all the time.
    """
    best = min(reasons["what_if"], key=lambda one: one["ns"])
    saved = max(1 - best["ns"] / max(reasons["ns"], 1), 0.0)
    if saved < LEAST_SAVED:
        return f"no resource alone: twice as fast, none saves more than {saved:.1%} of the step"
    return f"{IN_SENTENCES.get(best['resource'], best['resource'])}: twice as fast, that saves {saved:.1%} of the step"


def _heading(simulated: Mapping[str, Any]) -> str:
    servers, collectives = len(simulated["servers"]), simulated["collectives"]
    links = simulated.get("assumed_links")
    cluster = simulated["cluster"] + (f"; assumed: {links}" if links else "")
    return (
        f"{simulated['world_size']} x {simulated['gpu']} on {servers} server{'s' * (servers != 1)} "
        f"({cluster}), host {simulated['host']} ({simulated['host_mode']}); "
        f"whole run: {seconds(simulated['virtual_ns'])} simulated, {collectives} collective{'s' * (collectives != 1)}"
    )


def _step_details(step: Mapping[str, Any], host: str) -> list[str]:
    """The notes on how the step time was found, and where its range comes from."""
    lines = [f"steps from: {step['source']}"]
    if step["counted"] > 1:
        lines[0] += f"; {counted_steps(step)} took {seconds(step['min_ns'])} to {seconds(step['max_ns'])}"
    if step["host_median_ns"] is not None:
        lines[0] += f"; {seconds(step['host_median_ns'])} on the host"
    if (found := step["interval"]) is not None:
        parts = [f"kernel times +-{found['kernel_error']:.0%}"]
        if found["host_slow"] > 1:
            parts.append(
                f"hosts like {host} take {found['host_fast']:.2f} to {found['host_slow']:.2f} of the modelled time"
            )
        if found.get("host_slowest", 1) > 1:
            parts.append(f"ranks differ: the host's work is the slowest one's, {found['host_slowest']:.2f} of the mean")
        lines.append(f"interval from: {'; '.join(parts)}")
    return lines


def _host_bound(step: Mapping[str, Any]) -> list[str]:
    """The range of the host's work, where it may decide the step time."""
    found = step["interval"]
    if found is None or found["bound"] == "gpu":
        return []
    low, high = seconds(round(found["host_low_ns"])), seconds(round(found["host_high_ns"]))
    text = f"the host's work takes {low} to {high} of a step, by how fast your host is"
    if found["bound"] == "both":
        nearly = "nearly " if found["host_high_ns"] < step["median_ns"] else ""
        text += f"; a slow one {nearly}decides the step time"
    return [f"{text}: `phantora-async profile --host` measures yours"]


def _ranks_caption(simulated: Mapping[str, Any]) -> str:
    """The caption that names the windows of the table of ranks."""
    step, ranks = simulated["step"], simulated["ranks"]
    whole = sum(rank["window"] == "run" for rank in ranks)
    windows = {tuple(rank["counted_steps"]) for rank in ranks if rank.get("counted_steps")}
    if whole == len(ranks):
        since = WHOLE_RUN
    else:
        since = steps_named(*windows.pop()) if len(windows) == 1 else counted_steps(step)
        since += " (a rank without two optimizer steps: the whole run)" if whole else ""
        since += " (of each rank its own)" if windows else ""
    return f"GPU time in {since}; peaks of memory that PyTorch allocated and reserved, in the whole run"


class _Output:
    """Lines and tables as text, with colours if stdout is a terminal. Lines alone need no package."""

    def __init__(self) -> None:
        self._out = StringIO()
        self._terminal = sys.stdout.isatty()

    def say(self, *lines: str) -> None:
        for line in lines:
            self._print(line, "")

    def say_bold(self, line: str) -> None:
        self._print(line, "bold")

    def show(self, table: Table) -> None:
        self._console.print(table)

    @property
    def width(self) -> int:
        return self._console.width

    @functools.cached_property
    def _console(self) -> Console:
        from rich.console import Console

        width = None if self._terminal else UNBOUNDED
        return Console(file=self._out, force_terminal=self._terminal, no_color=not self._terminal, width=width)

    def _print(self, line: str, style: str) -> None:
        if not self._terminal:
            self._out.write(f"{line}\n")
            return
        from rich.text import Text

        self._console.print(Text(line, style), soft_wrap=True, highlight=False)

    def __str__(self) -> str:
        return self._out.getvalue()


def _ranks(ranks: Sequence[Rank], most: int) -> Table:
    """The table of ranks: up to `most` ranks have a row each; of more ranks it shows quantiles and the busiest ones."""
    from rich.table import Table

    table = Table(title=None, box=None, pad_edge=False, header_style="bold")
    table.add_column("rank")
    each = shares_of(ranks)
    accounts = accounts_of(each)
    for account in accounts:
        table.add_column(account.title, justify="right")
    table.add_column("allocated", justify="right")
    table.add_column("reserved", justify="right")
    if len(ranks) <= most:
        for rank in ranks:
            table.add_row(str(rank["rank"]), *_cells(rank, accounts))
        return table
    for title, pick in (("min", 0.0), ("median", 0.5), ("max", 1.0)):
        table.add_row(title, *_quantiles(ranks, each, pick, accounts))
    # Where all ranks did the same, the busiest ones are no others.
    busy = [one["compute"] for one in each]
    busiest = [ranks[place] for place in sorted(range(len(ranks)), key=lambda place: -busy[place])[:BUSIEST]]
    for rank in busiest if max(busy) > min(busy) else ():
        table.add_row(f"{rank['rank']} (busiest)", *_cells(rank, accounts))
    return table


def _gpu_work(simulated: Mapping[str, Any], rank: int | None, width: int, verbose: bool) -> list[Table]:
    """The tables of the work that takes most GPU time, without what NCCL kernels beside it cost: first by family, which
    adds up to most of it, then the kernels alone.
    """
    where = work_window(simulated, rank)
    families, kernels = family_rows(simulated, rank), kernel_rows(simulated, rank)
    by_family = _work_table(f"GPU work of {where}, by family", width)
    _fill(by_family, families, FAMILIES if verbose else FEW_FAMILIES, "other families")
    for name, ns in beside_kernels(simulated, rank):
        by_family.add_row("", seconds(round(ns)), "", "", f"and {name}")
    alone = _work_table("the kernels that take most of it", width, alone=True)
    _fill(alone, kernels, KERNELS if verbose else FEW_KERNELS, "others", with_lines=verbose)
    return [by_family, alone]


def _work_table(title: str, width: int, *, alone: bool = False) -> Table:
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in ("share", "time", "launches", "mean"):
        table.add_column(column, justify="right", no_wrap=True)
    if alone:
        table.add_column("source", no_wrap=True)
        table.add_column("bound by", no_wrap=True)
    room = max(LEAST_TITLE, width - FIGURES)
    table.add_column(title, no_wrap=True, overflow="ellipsis", max_width=room if alone else None)
    return table


def _fill(table: Table, rows: Sequence[WorkRow], most: int, others: str, *, with_lines: bool = False) -> None:
    """Adds the first rows, and one for the rest."""
    from rich.text import Text

    blank = [""] * (len(table.columns) - 5)
    # A table that would end with "1 others" shows that one instead.
    shown = rows if len(rows) == most + 1 else rows[:most]
    for row in shown:
        figures = (f"{row.share:.1%}", seconds(round(row.ns)), launches_text(row.launches), seconds(round(row.mean_ns)))
        title = f"{row.title} at {row.site}" if with_lines and row.site else row.title
        names = (row.source, row.bound, title) if blank else (title,)
        table.add_row(*figures, *map(Text, names))
    if rest := rows[len(shown) :]:
        share_of_rest, rest_ns = sum(row.share for row in rest), sum(row.ns for row in rest)
        table.add_row(f"{share_of_rest:.1%}", seconds(round(rest_ns)), "", "", *blank, f"{len(rest)} {others}")


def _cells(rank: Rank, accounts: Sequence[TimeAccount]) -> list[str]:
    of_rank = shares(rank)
    cells = [f"{of_rank[account.name]:.1%}" for account in accounts]
    peaks = [rank["memory"][key] for key in ("allocated_peak_nbytes", "reserved_peak_nbytes")]
    return cells + [peak(nbytes) for nbytes in peaks]


def _quantiles(
    ranks: Sequence[Rank], each: Sequence[Mapping[str, float]], at: float, accounts: Sequence[TimeAccount]
) -> list[str]:
    def value(values: list[float]) -> float:
        return sorted(values)[round(at * (len(values) - 1))]

    cells = [f"{value([one[account.name] for one in each]):.1%}" for account in accounts]
    for key in ("allocated_peak_nbytes", "reserved_peak_nbytes"):
        cells.append(peak(value([rank["memory"][key] for rank in ranks])))
    return cells


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
    """The peak as text; "-" for a rank that has allocated nothing, or that was ended before it reported its memory."""
    return size(nbytes) if nbytes else "-"
