"""A comparison as text for a terminal."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from io import StringIO

from rich.console import Console
from rich.table import Table
from rich.text import Text

from phantora_async.comparison.causes import LEAST_MS, ms_text, of_memory, of_time, signed_ms, step_change_ms
from phantora_async.comparison.comparison import LETTERS, Comparison
from phantora_async.comparison.figures import SAME, ComparedCalls, ComparedWork, Figure, Held, Part
from phantora_async.wording import printable, short

WIDTH = 110
"""The width of a line where the output is no terminal."""
NAME_WIDTH, FIGURE_WIDTH = 24, 22
"""The characters that a row needs at least for its name, and for the figure and change of each run."""
MOST_WORK = 10
"""The most kernels and collectives that are shown; JSON has all of them."""
LEAST_CHANGE = 0.0005
"""The relative change below which no change is shown."""


def comparison_text(comparison: Comparison) -> str:
    """Tables with a column for each run; coloured if stdout is a terminal."""
    out = StringIO()
    terminal = sys.stdout.isatty()
    console = Console(file=out, force_terminal=terminal, no_color=not terminal, width=None if terminal else WIDTH)
    # A narrow terminal wraps lines: a figure that is cut off is none.
    console.width = max(console.width, NAME_WIDTH + FIGURE_WIDTH * len(comparison.names))
    # Names of runs are too long for columns: letters stand for them.
    letters = LETTERS[: len(comparison.names)]
    for letter, name in zip(letters, comparison.names, strict=True):
        console.print(Text(f"{letter}  {printable(short(name))}"), soft_wrap=True)
    for remark in comparison.remarks:
        console.print(Text(f"note: {printable(remark)}"), soft_wrap=True)
    console.print()
    if comparison.differences:
        console.print(_table("what differs", letters, changes=False, rows=_differences(comparison)))
    else:
        console.print("nothing differs in what was set up")
    console.print()
    console.print(_table("", letters, rows=[_figure_row(one) for one in comparison.figures]))
    for text in _why(comparison, letters):
        console.print(Text(text), soft_wrap=True)
    if comparison.by_sizes:
        shares = ", ".join(f"{share:.1%} of {one}'s" for share, one in zip(comparison.by_sizes, letters, strict=True))
        console.print(f"sizes that data decide: {shares} GPU time depends on --data-shapes", soft_wrap=True)
    console.print()
    console.print(_table("a step, ms", letters, rows=[_part_row(one) for one in comparison.parts]))
    if comparison.families:
        console.print()
        title = "GPU work of a step and GPU, ms"
        console.print(_table(title, letters, rows=[_part_row(one) for one in comparison.families]))
    # Differences below LEAST_MS would be printed as zero. Long tables end with the number of rows that they leave out.
    for title, works in (
        ("kernels that changed most, ms a step and GPU", comparison.kernels),
        ("collectives that changed most, ms a step and GPU", comparison.collectives),
    ):
        changed = [one for one in works if one.most_changed_ms >= LEAST_MS]
        if changed:
            console.print()
            console.print(_table(title, letters, rows=[_work_row(one) for one in changed[:MOST_WORK]]))
            if len(changed) > MOST_WORK:
                console.print(f"{len(changed) - MOST_WORK} more changed: --json lists them")
    calls = [one for one in (*comparison.calls, *comparison.waits) if len(set(one.calls)) > 1]
    if calls:
        console.print()
        title = "collectives and waits for the GPU, calls a step and GPU"
        console.print(_table(title, letters, rows=[_calls_row(one) for one in calls[:MOST_WORK]]))
        if len(calls) > MOST_WORK:
            console.print(f"{len(calls) - MOST_WORK} more changed: --json lists them")
    if any(len(set(one.nbytes)) > 1 for one in comparison.memory):
        console.print()
        title = "memory of the fullest GPU, MiB"
        console.print(_table(title, letters, rows=[_held_row(one) for one in comparison.memory]))
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines()).rstrip()


def _table(title: str, letters: str, *, rows: Sequence[Sequence[str]], changes: bool = True) -> Table:
    """A table with a column for each run. A row is a name and the cells of each run, of which all but the first have a
    change.
    """
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column(title, overflow="fold")  # the only column that gives way where a row is too long
    for number, letter in enumerate(letters):
        table.add_column(letter, justify="right" if changes else "left", no_wrap=changes, overflow="fold")
        if changes and number:
            table.add_column("", justify="right", no_wrap=True)
    for name, *cells in rows:
        first = Text(printable(name), no_wrap=True, overflow="ellipsis") if changes else Text(printable(name))
        table.add_row(first, *(Text(printable(cell)) for cell in cells))
    return table


def _differences(comparison: Comparison) -> list[list[str]]:
    return [[one.what, *("-" if value is None else value for value in one.values)] for one in comparison.differences]


def _figure_row(figure: Figure) -> list[str]:
    cells = [f"{figure.name}, {figure.unit}" if figure.unit else figure.name]
    for run, value in enumerate(figure.values):
        cells.append("-" if value is None else _number(value))
        if run:
            change = figure.change(run)
            cells.append("" if change is None else _percent(change))
    return cells


def _part_row(part: Part) -> list[str]:
    cells = [part.name]
    for run, value in enumerate(part.ms):
        cells.append(ms_text(value))
        if run:
            cells.append(signed_ms(part.change_ms(run)))
    return cells


def _work_row(work: ComparedWork) -> list[str]:
    cells = [work.title if work.status == SAME else f"{work.title} [{work.status}]"]
    for run, value in enumerate(work.ms):
        cells.append(ms_text(value) if work.launches[run] else "-")
        if run:
            cells.append(signed_ms(value - work.ms[0]))
    return cells


def _calls_row(calls: ComparedCalls) -> list[str]:
    title = calls.title or "wait"
    cells = [f"{title} at {calls.site}" if calls.site else title]
    for run, count in enumerate(calls.calls):
        cells.append(f"{count:,.4g}")
        if run:
            cells.append("" if count == calls.calls[0] else f"{count - calls.calls[0]:+,.4g}")
    return cells


def _held_row(held: Held) -> list[str]:
    cells = [held.title]
    for run, nbytes in enumerate(held.nbytes):
        cells.append(_number(nbytes / 2**20))
        if run:
            change = nbytes - held.nbytes[0]
            cells.append("" if not change else f"{change / 2**20:+,.2f}")
    return cells


def _why(comparison: Comparison, letters: str) -> Iterator[str]:
    """Yields a line for each run whose step or memory differs: what accounts for it."""
    for run, letter in enumerate(letters[1:], start=1):
        change = step_change_ms(comparison, run)
        of_step = [*filter(None, of_time(comparison, run))]
        reasons = "; ".join(of_step)
        if change is not None:
            text = f"{letter}'s step is {ms_text(abs(change))} ms {'longer' if change > 0 else 'shorter'} than A's"
            yield f"{text}: {reasons}" if reasons else text
        if reasons := "; ".join(text for text in of_memory(comparison, run) if text and text not in of_step):
            yield f"{letter}'s fullest GPU against A's: {reasons}"


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 10_000 else f"{value:,.2f}"


def _percent(change: float) -> str:
    return "" if abs(change) < LEAST_CHANGE else f"{change:+.1%}"
