"""Makes a page for a browser of what a sweep has found: one file, with filters, that loads nothing from anywhere.

Table, picture and commands are there without scripts, too; the script filters and sorts them.
"""

from __future__ import annotations

import html
import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from typing import Any

from phantora_async.pages import assembled
from phantora_async.spending.text import KWH_J
from phantora_async.study.outcome.text import OF, figure_text
from phantora_async.study.trials.goal import ENERGY, MEMORY, MONEY, MORE_IS_BETTER, RATE, TIME
from phantora_async.study.trials.results import HIGH, LOW, NO_MEMORY
from phantora_async.wording import printable

Document = Mapping[str, Any]
Scale = Callable[[float], float]
BOTTOM, EDGE = 50, 24
"""The margins of a picture below and beside its axes, in pixels."""


@dataclass(frozen=True, slots=True)
class Size:
    """The size of a picture in pixels."""

    screen: str
    """The screens that show this picture; the others do not."""
    width: int
    height: int
    left: int
    """The margin for the texts of the upright axis."""
    ticks: int
    """About how many values the axis from left to right has."""


SIZES = (Size("wide", 720, 360, 90, 5), Size("narrow", 340, 300, 62, 3))
"""A picture that is scaled down to a phone has texts too small to read, so a phone has one of its own."""


def sweep_page(document: Document, title: str) -> str:
    """The page as HTML. `document`: from ``text.as_document``."""
    folder = resources.files(__package__)
    fit = [one for one in document["trials"] if one["compared"]]
    tried = len(document["trials"])
    return assembled(
        folder.joinpath("page.html").read_text(encoding="utf-8"),
        f"{title} - phantora-async sweep",
        folder.joinpath("page.js").read_text(encoding="utf-8"),
        heading=_text(title),
        summary=_text(f"{tried} trials, {len(fit)} compared in {', '.join(document['objectives']) or 'nothing'}"),
        best="".join(_best(name, one) for name, one in document["best"].items()) + _remarks(document),
        picture=_picture(document, fit),
        filters="".join(_filter(key, document["trials"]) for key in _chosen_keys(document["trials"])),
        table=_table(document),
        includes=_text(document["includes"]),
    )


def _text(value: object) -> str:
    return html.escape(printable(str(value)))


def _chosen_keys(trials: Sequence[Document]) -> list[str]:
    return list(dict.fromkeys(key for one in trials for key in one["chosen"]))


def _shown(value: Any) -> str:
    if isinstance(value, list | tuple):
        return " ".join(value)
    return str(value).lower() if isinstance(value, bool) else str(value)


def _best(objective: str, one: Document) -> str:
    return f"<h3>{_text(objective)}: {_text(one['trial'])}</h3><pre><code>{_text(one['command'])}</code></pre>"


def _remarks(document: Document) -> str:
    """The terminal's remarks on all trials, as a list; the one on what costs include stands below the page."""
    # The terminal marks rows with a star; the table says in words which are best.
    remarks = [one.removeprefix("* ") for one in document["remarks"] if one != document["includes"]]
    return f'<ul class="notes">{"".join(f"<li>{_text(one)}</li>" for one in remarks)}</ul>'


def _filter(key: str, trials: Sequence[Document]) -> str:
    values = dict.fromkeys(_shown(one["chosen"][key]) for one in trials if key in one["chosen"])
    options = "".join(f'<option value="{_text(value)}">{_text(value) or "none"}</option>' for value in values if value)
    return (
        f'<label>{_text(key)} <select data-key="{_text(key)}"><option value="">all</option>{options}</select></label>'
    )


def _table(document: Document) -> str:
    keys = _chosen_keys(document["trials"])
    figures = [one["title"] for one in next(iter(document["trials"]), {"shown": []})["shown"]]
    titles = [*keys, *figures, "how", "remark"]
    head = "".join(
        f'<th scope="col"{"" if title in figures else " class=text"}>{_text(title)}</th>' for title in titles
    )
    rows = "".join(_row(one, number, keys, titles) for number, one in _best_first(document))
    caption = '<caption class="faint">Every trial with what it has chosen and its figures</caption>'
    return f'<table id="table" class="named">{caption}<thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>'


def _best_first(document: Document) -> list[tuple[int, Document]]:
    """The trials with their numbers, in the order of the terminal: those that are not compared come last."""

    def losses(numbered: tuple[int, Document]) -> tuple[bool, list[float]]:
        one = numbered[1]
        return not one["compared"], _losses(one, document["objectives"]) if one["compared"] else []

    return sorted(enumerate(document["trials"]), key=losses)


def _losses(one: Document, objectives: Sequence[str]) -> list[float]:
    """The values of the objectives so that less is better."""
    return [-one["values"][name] if name in MORE_IS_BETTER else one["values"][name] for name in objectives]


def _title(name: str, document: Document) -> str:
    """An objective with what it is of."""
    return f"{name} {'reserved' if name == MEMORY else OF[document['by']][name]}".strip()


def _row(one: Document, number: int, keys: Sequence[str], titles: Sequence[str]) -> str:
    chosen = {key: _shown(value) for key, value in one["chosen"].items()}
    cells = [(chosen.get(key, ""), chosen.get(key, ""), "text") for key in keys]
    if not one["compared"]:
        shown = "".join(_cell(title, *cell) for title, cell in zip(keys, cells, strict=True))
        return _row_of(one, number, chosen, shown + _lacking_cell(titles[-1], one, len(titles) - len(keys)))
    cells += [
        (shown["text"], shown["value"], "costs" if shown["title"].startswith("costs") else "") for shown in one["shown"]
    ]
    cells.append((one["how"], one["how"], "text"))
    shown = "".join(_cell(title, *cell) for title, cell in zip(titles[:-1], cells, strict=True))
    return _row_of(one, number, chosen, shown + _remark_cell(titles[-1], one))


def _row_of(one: Document, number: int, chosen: Mapping[str, str], cells: str) -> str:
    lacks = " lacks" if one["state"] == NO_MEMORY else ""
    kind = "front" if one["front"] else "" if one["compared"] else f"unfit{lacks}"
    return f'<tr id="trial{number}" class="{kind}" data-chosen="{_text(json.dumps(chosen))}">{cells}</tr>'


def _cell(title: str, text: object, value: object, kind: str) -> str:
    """A cell of the table; on a narrow screen its title is in front of it."""
    shown = "" if value is None else _text(value)
    return f'<td{f" class={kind}" if kind else ""} data-title="{_text(title)}" data-value="{shown}">{_text(text)}</td>'


def _remark_cell(title: str, one: Document) -> str:
    """The last cell of a trial with figures. A note on them is long, and stands behind a click."""
    best, reason = "best" if one["front"] else "", one["reason"]
    note = f" <details><summary>note</summary>{_text(reason)}</details>" if reason else ""
    return (
        f'<td class=text data-title="{_text(title)}" data-value="{_text(f"{best} {reason}".strip())}">{best}{note}</td>'
    )


def _lacking_cell(title: str, one: Document, columns: int) -> str:
    """A cell with the reason why a trial has no figures, in the place of all of them. `columns`: as many cells wide."""
    reason = _text(f"{one['how']}; {one['reason']}")
    return f'<td class=text colspan={columns} data-title="{_text(title)}" data-value="{reason}">{reason}</td>'


# ---- the picture -----------------------------------------------------------------------------------------------------


def _picture(document: Document, fit: Sequence[Document]) -> str:
    """The trials in the first two objectives, as a picture for each size of a screen. The line joins those that no
    other one beats in these two; they are numbered, and listed with their figures. Bars are the 90% intervals.
    """
    if len(document["objectives"]) < 2 or not fit:
        return "<p>A picture needs two objectives that are known of all trials.</p>"
    across, up = document["objectives"][:2]
    front = front_in((across, up), fit)
    listed = "".join(
        f"<li><strong>{_text(one['trial'])}</strong>: {_text(_values(one, (across, up), document))}</li>"
        for one in front
    )
    pictures = "".join(_drawn(size, document, fit, front) for size in SIZES)
    return f'<p>{_text(_about(document, across, up))}</p><div class="drawn">{pictures}<ol>{listed}</ol></div>'


def _drawn(size: Size, document: Document, fit: Sequence[Document], front: Sequence[Document]) -> str:
    across, up = document["objectives"][:2]
    ranges = {name: [value for one in fit for value in _range(one, name)] for name in (across, up)}
    x = _scale(ranges[across], size.left, size.width - EDGE)
    y = _scale(ranges[up], size.height - BOTTOM, 2 * EDGE)
    parts = [
        _axis(across, ranges[across], document, x, size, upright=False),
        _axis(up, ranges[up], document, y, size, upright=True),
    ]
    line = " ".join(f"{x(one['values'][across]):.1f},{y(one['values'][up]):.1f}" for one in front)
    parts.append(f'<polyline points="{line}"/>')
    place = {id(one): number for number, one in enumerate(front, start=1)}
    # Trials at one point share a label, so that no number lies on another.
    at_point: dict[tuple[str, str], list[int]] = {}
    for one in front:
        at_point.setdefault(_point(x, y, one, across, up), []).append(place[id(one)])
    for number, one in enumerate(document["trials"]):
        if not one["compared"]:
            continue
        at_x, at_y = x(one["values"][across]), y(one["values"][up])
        (left, right), (low, high) = _range(one, across), _range(one, up)
        label = place.get(id(one))
        here = at_point.get(_point(x, y, one, across, up), [])
        numbers = f"{here[0]}-{here[-1]}" if len(here) > 2 else ", ".join(map(str, here))
        shown = f'<text x="{at_x + 7:.1f}" y="{at_y - 6:.1f}">{numbers}</text>' if label in here[:1] else ""
        about = f"{one['trial']}: {_values(one, (across, up), document)}"
        parts.append(
            f'<g class="point{" front" if label else ""}" data-row="trial{number}">'
            f'<line x1="{x(left):.1f}" x2="{x(right):.1f}" y1="{at_y:.1f}" y2="{at_y:.1f}"/>'
            f'<line x1="{at_x:.1f}" x2="{at_x:.1f}" y1="{y(low):.1f}" y2="{y(high):.1f}"/>'
            f'<circle r="4" cx="{at_x:.1f}" cy="{at_y:.1f}"><title>{_text(about)}</title>'
            f"</circle>{shown}</g>"
        )
    about = _text(
        f"{across} from left to right, {up} upwards, a point for each of {len(fit)} trials; the table has them"
    )
    box = f"0 0 {size.width} {size.height}"
    return f'<svg class="{size.screen}" viewBox="{box}" role="img" aria-label="{about}">{"".join(parts)}</svg>'


def _values(one: Document, names: Sequence[str], document: Document) -> str:
    return ", ".join(
        f"{name} {figure_text(name, one['values'][name], document['currency'])}{_range_text(one, name, document)}"
        for name in names
    )


def _point(x: Scale, y: Scale, one: Document, across: str, up: str) -> tuple[str, str]:
    """A trial's place in the picture, to the pixel."""
    return f"{x(one['values'][across]):.0f}", f"{y(one['values'][up]):.0f}"


def _about(document: Document, across: str, up: str) -> str:
    text = f"The numbered trials are those that no other one beats in {across} and {up}; bars are 90% intervals."
    if len(document["objectives"]) > 2:
        text += f" The table marks as best those that none beats in any of {', '.join(document['objectives'])}."
    return text


def front_in(objectives: Sequence[str], fit: Sequence[Document]) -> list[Document]:
    """The trials that no other one beats in these objectives, by the first of them."""

    points = [_losses(one, objectives) for one in fit]
    return sorted(
        (
            one
            for one, mine in zip(fit, points, strict=True)
            if not any(
                other != mine and all(theirs <= own for theirs, own in zip(other, mine, strict=True))
                for other in points
            )
        ),
        key=lambda one: float(one["values"][objectives[0]]),
    )


def _range(one: Document, name: str) -> tuple[float, float]:
    """The 90% interval of an objective that follows the step time; of others, and where it is not known, the value."""
    value, figures = one["values"][name], one.get("figures", {})
    step, ends = figures.get("step"), [figures.get(end) for end in (LOW, HIGH)]
    if name not in (TIME, MONEY, RATE) or not step or None in ends:
        return value, value
    low, high = (value * step / end if name == RATE else value * end / step for end in ends)
    return min(low, high), max(low, high)


def _range_text(one: Document, name: str, document: Document) -> str:
    low, high = _range(one, name)
    if low == high:
        return ""
    return f" ({' to '.join(figure_text(name, end, document['currency']) for end in (low, high))})"


def _scale(values: Sequence[float], begin: float, end: float) -> Scale:
    low, high = min(values), max(values)
    span = (high - low) or abs(high) or 1.0
    low -= 0.05 * span
    return lambda value: begin + (value - low) / (1.1 * span) * (end - begin)


def round_steps(low: float, high: float, unit: float = 1.0, about: int = 4) -> list[float]:
    """About so many values from low to high that are round in the unit: multiples of 1, 2, 2.5 or 5 times ten to some
    power. One value if there is no range.
    """
    span = (high - low) / unit
    if span <= 0:
        return [low]
    power = 10.0 ** math.floor(math.log10(span / about))
    step = next(times * power for times in (1, 2, 2.5, 5, 10) if times * power >= span / about)
    first, last = math.ceil(low / unit / step - 1e-9), math.floor(high / unit / step + 1e-9)
    return [number * step * unit for number in range(first, last + 1)]


def _unit(name: str, value: float) -> float:
    """The unit in which the values of an objective are written."""
    if name == MEMORY:
        return 2.0**30
    if name == TIME:
        return 3600.0 if value >= 3600 else 1.0
    return 1 / KWH_J if name == ENERGY and value < 1 else 1.0


def _axis(name: str, values: Sequence[float], document: Document, at: Scale, size: Size, *, upright: bool) -> str:
    marks = []
    foot, right = size.height - BOTTOM, size.width - EDGE
    for value in round_steps(min(values), max(values), _unit(name, max(values)), 5 if upright else size.ticks):
        # Round values need no zeros behind the point.
        written = (
            re.sub(r"\.?0+(?=[ %]|$)", "", shown)
            if "." in (shown := figure_text(name, value, document["currency"]))
            else shown
        )
        text = _text(written)
        if upright:
            marks.append(f'<text x="{size.left - 8}" y="{at(value) + 4:.1f}" text-anchor="end">{text}</text>')
        else:
            marks.append(f'<text x="{at(value):.1f}" y="{foot + 18}" text-anchor="middle">{text}</text>')
    if upright:
        line = f'<line x1="{size.left}" y1="{EDGE}" x2="{size.left}" y2="{foot}"/>'
        title = f'<text x="{size.left + 6}" y="{EDGE - 4}">{_text(_title(name, document))}</text>'
    else:
        line = f'<line x1="{size.left}" y1="{foot}" x2="{right}" y2="{foot}"/>'
        title = f'<text x="{right}" y="{size.height - 8}" text-anchor="end">{_text(_title(name, document))}</text>'
    return line + title + "".join(marks)
