"""A comparison as text for a terminal."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from io import StringIO

from rich.console import Console
from rich.table import Table
from rich.text import Text

from phantora_async.comparison.comparison import LETTERS, Comparison
from phantora_async.comparison.figures import SAME, ComparedWork, Figure, Part
from phantora_async.figures import STEP_TIME
from phantora_async.wording import printable, short

WIDTH = 110
"""The width of a line where the output is no terminal."""
MOST_WORK = 10
"""The most kernels and collectives that are shown; JSON has all of them."""
MOST_REASONS = 3
"""The most families that explain a part of the step."""
LEAST_CHANGE = 0.0005
"""The relative change below which no change is shown."""
LEAST_MS = 0.0005
"""The change in ms below which no change is shown: times are shown with three digits after the point."""


def comparison_text(comparison: Comparison) -> str:
    """Tables with a column for each run; coloured if stdout is a terminal."""
    out = StringIO()
    terminal = sys.stdout.isatty()
    console = Console(file=out, force_terminal=terminal, no_color=not terminal, width=None if terminal else WIDTH)
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
        cells.append(_ms(value))
        if run:
            cells.append(_signed_ms(part.change_ms(run)))
    return cells


def _work_row(work: ComparedWork) -> list[str]:
    cells = [work.title if work.status == SAME else f"{work.title} [{work.status}]"]
    for run, value in enumerate(work.ms):
        cells.append(_ms(value) if work.launches[run] else "-")
        if run:
            cells.append(_signed_ms(value - work.ms[0]))
    return cells


def _why(comparison: Comparison, letters: str) -> Iterator[str]:
    """Yields a sentence for each run whose step time differs: which parts of the step account for it."""
    step = next((one for one in comparison.figures if one.name == STEP_TIME.title), None)
    if step is None or not step.comparable:
        return
    for run, letter in enumerate(letters[1:], start=1):
        first, value = step.values[0], step.values[run]
        if first is None or value is None or abs(value - first) < LEAST_MS:
            continue
        changed = sorted(comparison.parts, key=lambda part: -abs(part.change_ms(run)))
        named = [f"{one.name} {_signed_ms(one.change_ms(run))}" for one in changed if _signed_ms(one.change_ms(run))]
        text = f"{letter}'s step is {_ms(abs(value - first))} ms {'longer' if value > first else 'shorter'} than A's"
        text += f": {', '.join(named)}" if named else ""
        by_family = sorted(comparison.families, key=lambda part: -abs(part.change_ms(run)))[:MOST_REASONS]
        work = [f"{one.name} {_signed_ms(one.change_ms(run))}" for one in by_family if _signed_ms(one.change_ms(run))]
        yield f"{text}; GPU work: {', '.join(work)}" if work else text


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 10_000 else f"{value:,.2f}"


def _percent(change: float) -> str:
    return "" if abs(change) < LEAST_CHANGE else f"{change:+.1%}"


def _ms(value: float) -> str:
    return f"{value:,.1f}" if value >= 1000 else f"{value:,.2f}" if value >= 10 else f"{value:.3f}"


def _signed_ms(value: float) -> str:
    """A change in ms with its sign; empty for no change."""
    return "" if abs(value) < LEAST_MS else f"{'+' if value > 0 else '-'}{_ms(abs(value))}"
