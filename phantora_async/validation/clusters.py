"""Runs the book of clusters, and writes the page that holds predictions beside what was published.

Predictions are made, and can be committed, before the file of published values exists: no run reads it.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from math import inf
from pathlib import Path
from statistics import mean

from formats.files import MOST_DATA_NBYTES, read_text
from phantora_async.errors import JobsFailed, UsageError
from phantora_async.validation import cluster_book, cluster_predictions, kept_rows, tables
from phantora_async.validation.cluster_book import ClusterBook, ClusterRow, ClusterTable
from phantora_async.validation.cluster_predictions import Prediction

HEADER = """\
| run | GPUs | published | predicted | error | interval | ratio published | predicted | off by | network | CPU |
| --- | ---: | ---: | ---: | ---: | --- | ---: | ---: | ---: | ---: | ---: |"""


_NETWORK_SHARES = (("less than 5%", 0.0, 0.05), ("5 to 10%", 0.05, 0.1), ("10% or more", 0.1, inf))


@dataclass(frozen=True, slots=True)
class Published:
    """The speed of one run as a source publishes it."""

    row: str
    tokens_per_s_gpu: float
    known: bool
    """True if whoever wrote the row had seen the value before it was predicted."""


@dataclass(frozen=True, slots=True)
class Compared:
    """A published run beside its prediction."""

    table: ClusterTable
    row: ClusterRow
    prediction: Prediction
    published: Published
    ratio: float | None
    """The speed of a GPU, divided by that of the curve's first row, as published; None for the first row."""
    predicted_ratio: float | None

    @property
    def error(self) -> float:
        """The error of the step time: above 0 if the prediction is slow."""
        return self.published.tokens_per_s_gpu / (self.prediction.tokens_per_s_gpu or 1.0) - 1.0

    @property
    def ratio_error(self) -> float | None:
        return None if self.ratio is None or self.predicted_ratio is None else self.predicted_ratio / self.ratio - 1.0

    @property
    def holds(self) -> bool:
        """True if the published step time is in the interval."""
        one = self.prediction
        step_s = self.row.tokens / self.published.tokens_per_s_gpu
        return one.low_s is not None and one.high_s is not None and one.low_s <= step_s <= one.high_s


def clusters(
    path: Path,
    only: Set[str],
    pythons: Mapping[str, str],
    folders: Mapping[str, str],
    run: bool,
) -> None:
    """Predicts the rows of the book (`only` these, if any are named) whose interpreter and folders are given, and
    writes its page if published values are there. Raises JobsFailed behind the page if a run failed.
    """
    book = cluster_book.read(path)
    if unknown := only - {row.name for _, row in book.rows()}:
        raise UsageError(f"no such row in {path}: {', '.join(sorted(unknown))}", "name rows of its tables")
    failed, left = [], []
    if run:
        chosen = [(table, row) for table, row in book.rows() if not only or row.name in only]
        commit = kept_rows.commit_of(path.absolute().parent)
        for number, (table, row) in enumerate(chosen, start=1):
            try:
                python, words = pythons[table.python], cluster_book.filled(row, folders)
            except KeyError as missing:
                left.append(f"{row.name} (needs {missing.args[0]})")
                continue
            print(f"{number}/{len(chosen)}: {row.name} on {row.gpus} GPUs ...", file=sys.stderr, flush=True)
            one = cluster_predictions.predict(row, words, python, commit)
            kept = cluster_predictions.read(book.predictions) | {one.row: one}  # another process may have added some
            kept_rows.write(book.predictions, [kept[row.name] for _, row in book.rows() if row.name in kept])
            print(said(one), flush=True)
            failed += [row.name] if one.failure else []
        if left:
            print(f"not run: {', '.join(left)}", flush=True)
    if book.published.exists():
        _write_page(book)
    if failed:
        raise JobsFailed(f"{len(failed)} runs failed: {', '.join(failed)}")


def said(one: Prediction) -> str:
    if one.step_s is None or one.tokens_per_s_gpu is None:
        return f"{one.row}: failed: {one.failure}"
    return f"{one.row}: {one.step_s:.4g} s a step, {one.tokens_per_s_gpu:,.0f} tokens/s a GPU, {one.cpu_s:.0f} s of CPU"


def read_published(path: Path) -> dict[str, Published]:
    found = {}
    for number, line in enumerate(read_text(path, MOST_DATA_NBYTES, UsageError).splitlines(), start=1):
        try:
            one = Published(**json.loads(line))
            if not isinstance(one.row, str) or not isinstance(one.known, bool) or not 0 < one.tokens_per_s_gpu < inf:
                raise ValueError("row is a name, known is true or false, tokens_per_s_gpu is a number above 0")
        except (ValueError, TypeError, RecursionError) as error:
            raise UsageError(f"{path}:{number}: not a published run: {error}") from None
        found[one.row] = one
    return found


def compare(
    book: ClusterBook, predictions: Mapping[str, Prediction], published: Mapping[str, Published]
) -> list[Compared]:
    """Holds each row that has both values beside its curve's first one that has both."""
    firsts: dict[str, tuple[float, float]] = {}
    found = []
    for table, row in book.rows():
        one, told = predictions.get(row.name), published.get(row.name)
        if one is None or told is None or one.tokens_per_s_gpu is None or one.step_s is None:
            continue
        first = firsts.get(row.curve)
        firsts.setdefault(row.curve, (told.tokens_per_s_gpu, one.tokens_per_s_gpu))
        ratios: tuple[float | None, float | None] = (None, None)
        if first is not None:
            ratios = (told.tokens_per_s_gpu / first[0], one.tokens_per_s_gpu / first[1])
        found.append(Compared(table, row, one, told, *ratios))
    return found


def _write_page(book: ClusterBook) -> None:
    predictions, published = cluster_predictions.read(book.predictions), read_published(book.published)
    rows = compare(book, predictions, published)
    tables.write_into(book.page, "clusters", summary(rows))
    tables.write_into(book.page, "cluster rows", details(book, rows, predictions, published))


def summary(rows: Sequence[Compared]) -> str:
    lines = [
        "| code base | program | rows | mean error | with its sign | worst | intervals hold | "
        "scaling ratios, mean and worst |",
        "| --- | --- | ---: | ---: | ---: | ---: | ---: | --- |",
    ]
    groups = dict.fromkeys((one.table.source.partition(",")[0], one.table.program) for one in rows)
    for source, program in groups:
        chosen = [one for one in rows if (one.table.source.partition(",")[0], one.table.program) == (source, program)]
        lines.append(_summary(source, program, chosen))
    if rows:
        lines.append(_summary("all", "", rows))
    lines += ["", *_by_network(rows)]
    hours = sum(one.prediction.cpu_s for one in rows) / 3600
    wall = sum(one.prediction.wall_s for one in rows) / 3600
    known = sum(one.published.known for one in rows)
    return "\n".join(lines) + (
        "\n\nAn error is the predicted step time divided by the published one, less one. "
        f"All {len(rows)} runs took {hours:.2f} hours of processor time and {wall:.2f} hours of wall time beside other "
        f"work. Published values of {known} rows had been seen before; all others were read after the prediction."
    )


def _by_network(rows: Sequence[Compared]) -> list[str]:
    """A table of the rows by how long the first GPU waits for transfers and peers: is the network what is off?"""
    lines = [
        "| network in the predicted step | rows | mean error | with its sign | worst |",
        "| --- | ---: | ---: | ---: | ---: |",
    ]
    for name, least, below in _NETWORK_SHARES:
        errors = [one.error for one in rows if least <= one.prediction.exposed < below]
        if errors:
            worst = max(map(abs, errors))
            lines.append(
                f"| {name} | {len(errors)} | {mean(map(abs, errors)):.1%} | {mean(errors):+.1%} | {worst:.1%} |"
            )
    return lines


def _summary(source: str, program: str, rows: Sequence[Compared]) -> str:
    errors = [abs(one.error) for one in rows]
    ratios = [abs(one.ratio_error) for one in rows if one.ratio_error is not None]
    cells = [
        source,
        program,
        str(len(rows)),
        f"{mean(errors):.1%}",
        f"{mean(one.error for one in rows):+.1%}",
        f"{max(errors):.1%}",
        f"{sum(one.holds for one in rows)}/{len(rows)}",
        f"{mean(ratios):.1%}, {max(ratios):.1%} of {len(ratios)}" if ratios else "",
    ]
    return f"| {' | '.join(cells)} |"


def details(
    book: ClusterBook,
    rows: Sequence[Compared],
    predictions: Mapping[str, Prediction],
    published: Mapping[str, Published],
) -> str:
    text = ""
    for table in book.tables:
        chosen = [one for one in rows if one.table is table]
        text += f"\n### {table.name}\n\nSource: {table.source}. Program: {table.program}.\n"
        if chosen:
            text += "\n" + "\n".join([HEADER, *map(line, chosen)]) + "\n"
        left = [row.name for row in table.rows if row.name not in predictions]
        for row in table.rows:
            one = predictions.get(row.name)
            if one is not None and one.failure:
                text += f"\n{row.name} failed: {one.failure}\n"
            elif one is not None and row.name not in published:
                text += f"\n{said(one)}; its published value was not read.\n"
        if left:
            text += f"\nNot run yet: {', '.join(left)}.\n"
        if table.cause and chosen:
            text += f"\n{table.cause}\n"
    return text.strip()


def line(one: Compared) -> str:
    prediction = one.prediction
    step_s = one.row.tokens / one.published.tokens_per_s_gpu
    interval = ""
    if prediction.low_s is not None and prediction.high_s is not None:
        interval = f"{prediction.low_s:.3g} to {prediction.high_s:.3g} s"
    cells = [
        one.row.name + (" (known)" if one.published.known else ""),
        str(one.row.gpus),
        f"{step_s:.3f} s",
        f"{prediction.step_s:.3f} s",
        f"{one.error:+.1%}",
        interval,
        "" if one.ratio is None else f"{one.ratio:.3f}",
        "" if one.predicted_ratio is None else f"{one.predicted_ratio:.3f}",
        "" if one.ratio_error is None else f"{one.ratio_error:+.1%}",
        f"{prediction.exposed:.0%}",
        f"{prediction.cpu_s:.0f} s",
    ]
    return f"| {' | '.join(cells)} |"
