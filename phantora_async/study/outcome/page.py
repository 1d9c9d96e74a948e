"""Makes a page for a browser of what a sweep has found: one file, with filters, that loads nothing from anywhere.

Table, picture and commands are there without scripts, too; the script filters and sorts them.
"""

from __future__ import annotations

import html
import json
from collections.abc import Callable, Mapping, Sequence
from importlib import resources
from typing import Any

from phantora_async.pages import assembled
from phantora_async.study.outcome.text import OF, figure_text
from phantora_async.wording import printable

Document = Mapping[str, Any]
Scale = Callable[[float], float]
WIDTH, HEIGHT, LEFT, BOTTOM, EDGE = 720, 360, 90, 50, 16
"""The sizes of the picture and of the margins beside its axes, in pixels."""


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
        best="".join(_best(name, one) for name, one in document["best"].items()) or "<p>No trial can be compared.</p>",
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


def _filter(key: str, trials: Sequence[Document]) -> str:
    values = dict.fromkeys(_shown(one["chosen"][key]) for one in trials if key in one["chosen"])
    options = "".join(f'<option value="{_text(value)}">{_text(value) or "none"}</option>' for value in values if value)
    return (
        f'<label>{_text(key)} <select data-key="{_text(key)}"><option value="">all</option>{options}</select></label>'
    )


def _table(document: Document) -> str:
    keys, objectives = _chosen_keys(document["trials"]), document["objectives"]
    of = OF[document["by"]]
    titles = [*keys, *(f"{name} {of[name]}".strip() for name in objectives), "how", "remark"]
    head = "".join(f'<th scope="col">{_text(title)}</th>' for title in titles)
    rows = "".join(_row(document, one, number, keys) for number, one in enumerate(document["trials"]))
    caption = '<caption class="faint">Every trial with what it has chosen and its figures</caption>'
    return f'<table id="table">{caption}<thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>'


def _row(document: Document, one: Document, number: int, keys: Sequence[str]) -> str:
    chosen = {key: _shown(value) for key, value in one["chosen"].items()}
    cells = [_cell(chosen.get(key, ""), chosen.get(key, "")) for key in keys]
    for name in document["objectives"]:
        value = one["values"][name]
        cells.append(_cell("" if value is None else figure_text(name, value, document["currency"]), value))
    cells.append(_cell(one["how"], one["how"], "text"))
    remark = "; ".join(filter(None, ["best" if one["front"] else "", one["reason"]]))
    cells.append(_cell(remark, remark, "text"))
    kind = "front" if one["front"] else "" if one["compared"] else "unfit"
    chosen_text = _text(json.dumps(chosen))
    return f'<tr id="trial{number}" class="{kind}" data-chosen="{chosen_text}">{"".join(cells)}</tr>'


def _cell(text: object, value: object, kind: str = "") -> str:
    shown = "" if value is None else _text(value)
    return f'<td{f" class={kind}" if kind else ""} data-value="{shown}">{_text(text)}</td>'


# ---- the picture -----------------------------------------------------------------------------------------------------


def _picture(document: Document, fit: Sequence[Document]) -> str:
    if len(document["objectives"]) < 2 or not fit:
        return "<p>A picture needs two objectives that are known of all trials.</p>"
    across, up = document["objectives"][:2]
    x = _scale([one["values"][across] for one in fit], LEFT, WIDTH - EDGE)
    y = _scale([one["values"][up] for one in fit], HEIGHT - BOTTOM, EDGE)
    parts = [_axis(across, fit, document, x, upright=False), _axis(up, fit, document, y, upright=True)]
    front = sorted((one for one in fit if one["front"]), key=lambda one: one["values"][across])
    line = " ".join(f"{x(one['values'][across]):.1f},{y(one['values'][up]):.1f}" for one in front)
    parts.append(f'<polyline points="{line}"/>')
    for number, one in enumerate(document["trials"]):
        if one["compared"]:
            values = ", ".join(
                f"{name} {figure_text(name, one['values'][name], document['currency'])}" for name in (across, up)
            )
            kind = ' class="front"' if one["front"] else ""
            parts.append(
                f'<circle{kind} data-row="trial{number}" r="4" cx="{x(one["values"][across]):.1f}" '
                f'cy="{y(one["values"][up]):.1f}"><title>{_text(one["trial"])}: {_text(values)}</title></circle>'
            )
    label = _text(
        f"{across} from left to right, {up} upwards, a point for each of {len(fit)} trials; the table has them"
    )
    return f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{label}">{"".join(parts)}</svg>'


def _scale(values: Sequence[float], begin: float, end: float) -> Scale:
    low, high = min(values), max(values)
    span = (high - low) or abs(high) or 1.0
    low -= 0.05 * span
    return lambda value: begin + (value - low) / (1.1 * span) * (end - begin)


def _axis(
    name: str, fit: Sequence[Document], document: Document, at: Callable[[float], float], *, upright: bool
) -> str:
    low, high = min(one["values"][name] for one in fit), max(one["values"][name] for one in fit)
    marks = []
    for value in dict.fromkeys((low, (low + high) / 2, high)):
        text = _text(figure_text(name, value, document["currency"]))
        if upright:
            marks.append(f'<text x="{LEFT - 8}" y="{at(value) + 4:.1f}" text-anchor="end">{text}</text>')
        else:
            marks.append(f'<text x="{at(value):.1f}" y="{HEIGHT - BOTTOM + 18}" text-anchor="middle">{text}</text>')
    if upright:
        line = f'<line x1="{LEFT}" y1="{EDGE}" x2="{LEFT}" y2="{HEIGHT - BOTTOM}"/>'
        title = f'<text x="{LEFT + 6}" y="{EDGE + 4}">{_text(name)}</text>'
    else:
        line = f'<line x1="{LEFT}" y1="{HEIGHT - BOTTOM}" x2="{WIDTH - EDGE}" y2="{HEIGHT - BOTTOM}"/>'
        title = f'<text x="{WIDTH - EDGE}" y="{HEIGHT - 8}" text-anchor="end">{_text(name)}</text>'
    return line + title + "".join(marks)
