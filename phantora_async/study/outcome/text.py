"""Writes what a sweep has found, for a terminal and as JSON."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from phantora_async.budget import FIGURES
from phantora_async.spending.bill import INCLUDES
from phantora_async.spending.text import duration_text, energy_text, number
from phantora_async.study.outcome.columns import WHOLE, columns
from phantora_async.study.outcome.front import Entry, Outcome
from phantora_async.study.trials.goal import ENERGY, MEMORY, MFU, MONEY, RATE, TIME
from phantora_async.study.trials.results import Result
from phantora_async.wording import GROWS, gib, printable, seconds

OF = {
    of: dict.fromkeys((TIME, MONEY, ENERGY), text) | dict.fromkeys((RATE, MFU, MEMORY), "")
    for of, text in WHOLE.items()
}
"""Words for the amount of work that an objective is for."""
NAME = 60
"""The characters of a name that are shown."""
MOST_TIED = 5
"""The most trials that are named as equally fast."""
Command = Callable[[Entry], str]


def as_text(found: Outcome, command: Command) -> str:
    """The trials that are compared, the best one first, the others with the reason, then the best ones as commands."""
    lines = []
    if found.fit:
        front = set(map(id, found.front))
        ordered = sorted(found.fit, key=lambda one: [one.loss(name, found.of) or 0.0 for name in found.objectives])
        lines += _table([_cells(found, one, id(one) in front) for one in ordered], _titles(found))
    unfit = [one for one in found.entries if one.unfit]
    width = max((len(_short(one)) for one in unfit), default=0)
    lines += [printable(f"  {_short(one):<{width}}  {one.unfit}") for one in unfit]
    return "\n".join([*lines, *_remarks(found), *_commands(found, command)])


def _titles(found: Outcome) -> list[str]:
    return ["trial", *(one.title for one in columns(found)), "how"]


def _cells(found: Outcome, entry: Entry, best: bool) -> list[str]:
    return [
        f"{'*' if best else ' '} {_short(entry)}",
        *(one.text(entry) for one in columns(found)),
        entry.result.how,
    ]


def _table(rows: list[list[str]], titles: list[str]) -> list[str]:
    titles = [f"  {titles[0]}", *titles[1:]]
    widths = [max(len(row[column]) for row in (titles, *rows)) for column in range(len(titles))]
    last = len(titles) - 1
    return [
        printable(
            "  ".join(
                cell.ljust(width) if column in (0, last) else cell.rjust(width)
                for column, (cell, width) in enumerate(zip(row, widths, strict=True))
            )
        ).rstrip()
        for row in (titles, *rows)
    ]


def _short(entry: Entry) -> str:
    return entry.trial.name[:NAME]


def _remarks(found: Outcome) -> list[str]:
    if not found.fit:
        return ["no trial can be compared"]
    lines = [f"* best of {len(found.fit)} in {', '.join(found.objectives)}: no other one is better in all of these"]
    if found.tied:
        names = ", ".join(_short(one) for one in found.tied[:MOST_TIED])
        more = f" and {len(found.tied) - MOST_TIED} more" if len(found.tied) > MOST_TIED else ""
        cheapest = "the cheapest first: " if MONEY in found.objectives else ""
        lines.append(
            f"{len(found.tied)} trials are equally fast within the 90% interval of the fastest, {cheapest}{names}{more}"
        )
    if missing := [name for name in found.asked if name not in found.objectives]:
        lines.append(f"not compared: {', '.join(missing)} (not known of each trial: a GPU without price or power)")
    if not found.by_tokens and len({_work(one) for one in found.fit}) > 1:
        lines.append(
            "compared by steps, though steps of these trials may do different amounts of work: state tokens_per_step"
        )
    if any(one.bill is not None and one.bill["price"] for one in found.fit):
        lines.append(INCLUDES)
    growing = [one for one in found.fit if one.result.reason.startswith(GROWS)]
    return lines + [printable(f"{_short(one)}: {one.result.reason.split('; ')[0]}") for one in growing]


def _work(entry: Entry) -> tuple[Any, ...]:
    """The properties that decide how much work a step is, as far as they are known."""
    return (entry.result.job and entry.result.job.gpus, entry.trial.options.arguments, str(entry.trial.environment))


def _commands(found: Outcome, command: Command) -> list[str]:
    by_entry: dict[int, list[str]] = {}
    entries = {}
    for objective in found.objectives:
        best = found.best(objective)
        entries[id(best)] = best
        by_entry.setdefault(id(best), []).append(objective)
    return [f"{', '.join(names)}: {command(entries[one])}" for one, names in by_entry.items()]


def progress_line(result: Result, known: int, total: int) -> str:
    """The line for a trial that is done: ``[3/12] run  batch=2 gpu=h100: step 433.8 ms, 37.97 GiB (12 s)``."""
    what = f"{result.state}: {result.reason}"
    if result.good and result.job is not None:
        memory = gib(result.figures.get("memory", 0.0))
        what = f"step {FIGURES['step'].text(result.job.step_s)}, {memory}"
    return printable(f"[{known}/{total}] {result.how}  {result.name}: {what} ({number(result.wall_s)} s)")


def figure_text(objective: str, value: float, currency: str) -> str:
    """The value of one objective as text."""
    if objective == MEMORY:
        return gib(value)
    if objective == TIME:
        return duration_text(value / 3600) if value >= 3600 else seconds(round(value * 1e9))
    if objective == RATE:
        return f"{value:,.0f}"
    if objective == MFU:
        return FIGURES["mfu"].text(value)
    return f"{currency}{number(value)}" if objective == MONEY else energy_text(value)


# ---- for programs ----------------------------------------------------------------------------------------------------


def as_document(found: Outcome, command: Command) -> dict[str, Any]:
    front = set(map(id, found.front))
    best = {name: found.best(name) for name in found.objectives}
    return {
        "format": 1,
        "objectives": list(found.objectives),
        "by": found.of,
        "currency": next((one.price.currency for one in found.entries if one.price is not None), ""),
        "trials": [_trial_document(found, one, id(one) in front) for one in found.entries],
        "remarks": _remarks(found),
        "tied": [one.trial.name for one in found.tied],
        "best": {name: {"trial": one.trial.name, "command": command(one)} for name, one in best.items()},
        "includes": INCLUDES,
    }


def _trial_document(found: Outcome, entry: Entry, on_front: bool) -> dict[str, Any]:
    result = entry.result
    return {
        "trial": result.name,
        "chosen": dict(entry.trial.chosen),
        "how": result.how,
        "state": result.state,
        "compared": not entry.unfit,
        "reason": entry.unfit or result.reason,
        "front": on_front,
        "figures": dict(result.figures),
        "values": {name: found.value(entry, name) for name in found.objectives},
        "shown": [
            {"title": one.title, "text": one.text(entry), "value": next(iter(one.values(entry).values()))}
            for one in columns(found)
        ],
        "spent": entry.bill,
        "report": result.report or None,
        "wall_s": round(result.wall_s, 3),
    }


def rows(found: Outcome) -> list[dict[str, Any]]:
    """A row for each trial, with a column for each setting that was chosen."""
    front = set(map(id, found.front))
    trials = [_trial_document(found, one, id(one) in front) for one in found.entries]
    shown = columns(found)
    chosen = dict.fromkeys(key for one in trials for key in one["chosen"])
    plain = ("how", "state", "compared", "front", "reason", "report")
    return [
        {"trial": one["trial"]}
        | {key: one["chosen"].get(key) for key in chosen}
        | {name: value for column in shown for name, value in column.values(entry).items()}
        | {f"{name}_value": one["values"].get(name) for name in found.objectives}
        | {name: one[name] for name in plain}
        for one, entry in zip(trials, found.entries, strict=True)
    ]
