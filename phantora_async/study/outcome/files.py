"""Writes what a sweep has found to files: tables as CSV, JSON and Parquet, and a picture of the Pareto front."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from formats.files import try_to_write, write_whole
from phantora_async.errors import EnvironmentUnusable, NotWritten, UsageError
from phantora_async.study.outcome.columns import columns
from phantora_async.study.outcome.front import Entry, Outcome
from phantora_async.study.outcome.text import OF, rows
from phantora_async.study.trials.goal import ENERGY, MEMORY, TIME
from phantora_async.wording import markdown, short

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TABLES = (".csv", ".json", ".parquet", ".md")
PICTURES = (".png", ".svg", ".pdf")
GIB = 2**30
Rows = Sequence[Mapping[str, Any]]


def check_files(table: Path | None, picture: Path | None, page: Path | None = None) -> None:
    """Checks before anything starts that these files can be written. Raises UsageError, NotWritten, and
    EnvironmentUnusable for a missing package.
    """
    for path, kinds, option in ((table, TABLES, "--table"), (picture, PICTURES, "--picture")):
        if path is not None and path.suffix not in kinds:
            raise UsageError(f"{option} {path}: expected a name that ends with {', '.join(kinds)}")
    if table is not None and table.suffix == ".parquet":
        _pyarrow()
    if picture is not None:
        _pyplot()
    for one in filter(None, (table, picture, page)):
        try:
            try_to_write(one)
        except OSError as error:
            raise NotWritten(f"cannot write {short(one)}: {error.strerror}") from None


def _pyarrow() -> Any:
    try:
        import pyarrow.parquet
    except ImportError:
        raise EnvironmentUnusable(
            "Parquet needs pyarrow, which is not installed", "pip install 'phantora-async[parquet]'"
        ) from None
    return pyarrow


def _pyplot() -> Any:
    try:
        from matplotlib import pyplot
    except ImportError:
        raise EnvironmentUnusable(
            "pictures need matplotlib, which is not installed", "pip install 'phantora-async[plot]'"
        ) from None
    return pyplot


def write(path: Path, content: bytes) -> None:
    """Writes the file. Raises NotWritten."""
    try:
        write_whole(path, content)
    except OSError as error:
        raise NotWritten(f"cannot write {short(path)}: {error.strerror}") from None


def table(found: Outcome, kind: str) -> bytes:
    """The table of trials, in the study's order. `kind`: one of TABLES."""
    trials = rows(found)
    if kind == ".json":
        return (json.dumps(trials, indent=1) + "\n").encode()
    if kind == ".parquet":
        return _parquet(trials)
    if kind == ".md":
        return _markdown(found).encode()
    out = io.StringIO()
    writer = csv.DictWriter(out, list(trials[0]) if trials else ["trial"], lineterminator="\n")
    writer.writeheader()
    writer.writerows(trials)
    return out.getvalue().encode()


def _markdown(found: Outcome) -> str:
    """The table as Markdown, as a terminal shows it."""
    shown, front = columns(found), set(map(id, found.front))
    titles = ["trial", *(one.title for one in shown), "how", "remark"]
    lines = [f"| {' | '.join(titles)} |", f"| --- |{' ---: |' * len(shown)} --- | --- |"]
    for entry in found.entries:
        remark = "; ".join(filter(None, ["best" if id(entry) in front else "", entry.unfit or entry.result.reason]))
        cells = [entry.trial.name, *(one.text(entry) for one in shown), entry.result.how, remark]
        lines.append(f"| {' | '.join(map(markdown, cells))} |")
    return "\n".join([*lines, ""])


def _parquet(trials: Rows) -> bytes:
    """The table as Parquet. A column whose values differ in type becomes one of texts."""
    pyarrow = _pyarrow()
    columns = {}
    for name in trials[0] if trials else ():
        values = [one[name] for one in trials]
        kinds = {type(value) for value in values if value is not None}
        plain = (len(kinds) <= 1 and not kinds & {list, tuple}) or kinds == {int, float}
        columns[name] = values if plain else [None if value is None else _words(value) for value in values]
    out = pyarrow.BufferOutputStream()
    pyarrow.parquet.write_table(pyarrow.table(columns), out)
    return bytes(out.getvalue())


def _words(value: Any) -> str:
    return " ".join(value) if isinstance(value, list | tuple) else str(value)


def picture(found: Outcome) -> Figure:
    """A picture with the first objective from left to right, the second one upwards; best trials are joined and named.
    Raises UsageError with fewer than two objectives.
    """
    pyplot = _pyplot()
    if len(found.objectives) < 2:
        known = ", ".join(found.objectives) or "none"
        raise UsageError(f"a picture needs two objectives that are known of all trials; known: {known}")
    across, up = found.objectives[:2]

    def points(entries: Sequence[Entry]) -> tuple[list[float], list[float]]:
        return [_drawn(found, one, across) for one in entries], [_drawn(found, one, up) for one in entries]

    figure: Figure
    figure, axes = pyplot.subplots(figsize=(8, 5), layout="constrained")
    axes.scatter(*points(found.fit), color="tab:gray", s=18, label="trials")
    front = sorted(found.front, key=lambda one: found.value(one, across) or 0.0)
    axes.plot(*points(front), color="tab:blue", marker="o", label="no other one is better in all objectives")
    for entry, x, y in zip(front, *points(front), strict=True):
        axes.annotate(entry.trial.name[:40], (x, y), fontsize=7, xytext=(4, 4), textcoords="offset points")
    axes.set_xlabel(_label(across, found))
    axes.set_ylabel(_label(up, found))
    axes.legend()
    pyplot.close(figure)
    return figure


def _drawn(found: Outcome, entry: Entry, objective: str) -> float:
    return (found.value(entry, objective) or 0.0) / (GIB if objective == MEMORY else 1)


def _label(objective: str, found: Outcome) -> str:
    units = {TIME: "s", MEMORY: "GiB", ENERGY: "kWh"}
    unit = f"[{units[objective]}]" if objective in units else ""
    return " ".join(filter(None, [objective, OF[found.of][objective], unit]))


def picture_bytes(found: Outcome, kind: str) -> bytes:
    """The picture as a file of this kind. `kind`: one of PICTURES."""
    out = io.BytesIO()
    picture(found).savefig(out, format=kind.removeprefix("."), dpi=150)
    return out.getvalue()
