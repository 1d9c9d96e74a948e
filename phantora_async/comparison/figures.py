"""Compares numbers side by side: speed and memory, what a step consists of, GPU work by family and by signature,
collectives.

Times of parts, families and signatures are milliseconds of one step and one GPU: means over ranks and steps.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from phantora_async.figures import (
    HOST_WORK,
    INTERVAL_HIGH,
    INTERVAL_LOW,
    RUN_FIGURES,
    STEP_TIME,
    TIME_ACCOUNTS,
    TOKENS,
    RunFigure,
    logged_rate,
    steps_that_count,
)
from phantora_async.report.gpu_work import family_of, signature_times
from phantora_async.report.steps import has_step_time

Report = Mapping[str, Any]
COPIES = ("copy", "memset")
TIMES_OF_STEPS = (STEP_TIME, INTERVAL_LOW, INTERVAL_HIGH, HOST_WORK)
"""The figures that do not compare where runs found their steps in different ways."""
SAME, SIZES, NEW, GONE = "both", "other sizes", "new", "gone"


@dataclass(frozen=True, slots=True)
class Figure:
    """A number of the whole run, for each run."""

    name: str
    unit: str
    """The unit: ms, GiB, %, or empty."""
    values: tuple[float | None, ...]
    """The value for each run; None: not known."""
    comparable: bool = True

    def change(self, run: int) -> float | None:
        """The relative change from the first run to this one; None if a value is not known, or they are not
        comparable.
        """
        first, value = self.values[0], self.values[run]
        return value / first - 1 if self.comparable and first and value is not None else None


@dataclass(frozen=True, slots=True)
class Part:
    """A part of a step, or a family of its GPU work, in ms for each run."""

    name: str
    ms: tuple[float, ...]

    def change_ms(self, run: int) -> float:
        return self.ms[run] - self.ms[0]


@dataclass(frozen=True, slots=True)
class ComparedWork:
    """GPU work with one signature, or one kind of collective, in all runs."""

    title: str
    status: str
    """`both`; `other sizes`: the same kernel and op have other sizes in the other runs; `new`: not in the first run;
    `gone`: in the first run alone."""
    ms: tuple[float, ...]
    launches: tuple[float, ...]
    """The launches in a step of one GPU, for each run."""

    @property
    def most_changed_ms(self) -> float:
        return max(abs(value - self.ms[0]) for value in self.ms[1:])


@dataclass(frozen=True, slots=True)
class ComparedCalls:
    """One kind of collective, or one place where the host waits for the GPU, in all runs."""

    title: str
    site: str
    """The line of the program in the last run that has it; empty if it is not known."""
    code: str
    """The text of the line."""
    calls: tuple[float, ...]
    """The calls in a step of one GPU, for each run."""
    nbytes: tuple[float, ...]
    """The bytes of these calls together."""


@dataclass(frozen=True, slots=True)
class Held:
    """A part of the memory of the fullest GPU at its peak, or what one line of the program asked for."""

    title: str
    part: str
    """The part of the memory to which a line's belongs; empty for a part itself."""
    nbytes: tuple[int, ...]
    """The bytes for each run."""


# ---- of the whole run ------------------------------------------------------------------------------------------------


def figures(reports: Sequence[Report]) -> list[Figure]:
    """The figures in the order in which they are shown, without those that no run has."""
    simulated = [report["simulated"] for report in reports]

    def row(figure: RunFigure, comparable: bool = True) -> Figure:
        scale = figure.unit.scale
        values = tuple(value / scale if value else None for value in map(figure.value, simulated))
        return Figure(figure.title, figure.unit.shown, values, comparable)

    steps_compare = len({_step_kind(one["step"]) for one in simulated}) == 1
    rows: list[Figure] = []
    for figure in RUN_FIGURES:
        if figure is STEP_TIME:  # a run that failed before it had whole steps has none
            rows.append(Figure(figure.title, figure.unit.shown, tuple(map(_step_ms, reports)), steps_compare))
        elif figure is TOKENS:  # ... and whatever other rates the scripts logged
            rows += [row(logged_rate(rate)) for rate in _rates(simulated)]
        else:
            rows.append(row(figure, steps_compare or figure not in TIMES_OF_STEPS))
    return [one for one in rows if any(value is not None for value in one.values)]


def _step_ms(report: Report) -> float | None:
    return report["simulated"]["step"]["median_ns"] / 1e6 if has_step_time(report) else None


def _step_kind(step: Mapping[str, Any]) -> str:
    return str(step["source"]).split(":", 1)[0]


def _rates(simulated: Sequence[Mapping[str, Any]]) -> list[str]:
    return list(dict.fromkeys(one["rate"] for each in simulated for one in each.get("logged", []) if "rate" in one))


# ---- of a step -------------------------------------------------------------------------------------------------------


def parts(reports: Sequence[Report]) -> list[Part]:
    """The parts of the step time, which add up to it. They are those of the oldest report."""
    shares = [_shares(report["simulated"]) for report in reports]
    ranks = [rank for report in reports for rank in report["simulated"]["ranks"]]
    later = [one for one in TIME_ACCOUNTS if one.split_from and any(one.ns not in rank for rank in ranks)]
    for account in later:
        for one in shares:
            one[account.split_from] += one[account.name]
    told = [account for account in TIME_ACCOUNTS if account not in later]
    found = [(account, tuple(one[account.name] for one in shares)) for account in told]
    return [Part(account.title, times) for account, times in found if account.common or any(times)]


def _shares(simulated: Mapping[str, Any]) -> dict[str, float]:
    step_ms = simulated["step"]["median_ns"] / 1e6
    means = {account.name: 0.0 for account in TIME_ACCOUNTS}
    ranks = simulated["ranks"]
    for rank in ranks:
        total = sum(account.time_of(rank) for account in TIME_ACCOUNTS)
        for account in TIME_ACCOUNTS:
            means[account.name] += account.time_of(rank) / total / len(ranks) * step_ms if total else 0.0
    return means


def families(reports: Sequence[Report]) -> list[Part]:
    """The GPU work by the model that prices it, the longest family first."""
    sums = []
    for report in reports:
        by_family: dict[str, float] = defaultdict(float)
        for ns, _, one in _signatures(report):
            by_family[family_of(one)] += ns / 1e6
        sums.append(by_family)
    names = dict.fromkeys(name for one in sums for name in one)
    rows = [Part(name, tuple(one.get(name, 0.0) for one in sums)) for name in names]
    return sorted(rows, key=lambda row: (-max(row.ms), row.name))


# ---- of signatures ---------------------------------------------------------------------------------------------------


def kernels(reports: Sequence[Report]) -> list[ComparedWork]:
    """The kernels, those that changed most first. A signature that not all runs have is joined with the signatures of
    the same kernel and op that have other sizes.
    """
    shared = set.intersection(*({_text(one) for _, _, one in _signatures(report)} for report in reports))
    rows: dict[str, list[tuple[float, float]]] = {}
    titles: dict[str, str] = {}
    for number, report in enumerate(reports):
        for ns, launches, one in _signatures(report):
            text = _text(one)
            key = text if text in shared else _without_sizes(text)
            titles.setdefault(key, one["title"] if text in shared else _title_without_sizes(text, one["title"]))
            row = rows.setdefault(key, [(0.0, 0.0)] * len(reports))
            ms_before, launches_before = row[number]
            row[number] = (ms_before + ns / 1e6, launches_before + launches)
    found = [_work(titles[key], row, SAME if key in shared else SIZES) for key, row in rows.items()]
    return sorted(found, key=lambda work: (-work.most_changed_ms, work.title))


def apart(works: Sequence[ComparedWork], run: int) -> float:
    """The share of a run's GPU time in work that the first run (for the first run: the second) does less often or in
    other sizes.
    """
    other = 0 if run else 1
    total = sum(work.ms[run] for work in works)
    extra = 0.0
    for work in works:
        if work.status != SAME:
            extra += work.ms[run]
        elif work.launches[run] > work.launches[other]:
            extra += work.ms[run] * (1 - work.launches[other] / work.launches[run])
    return extra / total if total else 0.0


def without_reasons(reports: Sequence[Report]) -> list[int]:
    """The numbers of the runs whose single collectives are not known: without `run --reasons`, or without a step that
    could be explained.
    """
    return [number for number, one in enumerate(reports) if "collectives" not in one["simulated"].get("reasons", {})]


def collectives(reports: Sequence[Report]) -> list[ComparedWork]:
    """The collectives of the explained step, those that changed most first; none if the reasons of some run are
    missing.
    """
    known, _ = _collectives(reports)
    found = [_work(title, row, SAME) for title, row in known.items()]
    return sorted(found, key=lambda work: (-work.most_changed_ms, work.title))


def collectives_left_out(reports: Sequence[Report]) -> int:
    """The number of collectives that are not compared. A report lists the longest ones only: one that is missing in
    another report may have run there and be shorter.
    """
    return _collectives(reports)[1]


Row = list[tuple[float, float]]


def _collectives(reports: Sequence[Report]) -> tuple[dict[str, Row], int]:
    """The times and calls of the collectives that can be compared, and the number of those that cannot."""
    if without_reasons(reports):
        return {}, 0
    rows: dict[str, Row] = {}
    more = []
    for number, report in enumerate(reports):
        listed = report["simulated"]["reasons"]["collectives"]
        more.append(listed.get("left_out", 1) > 0)
        for one in listed["gpu"]:
            ranks = report["simulated"]["world_size"]
            row = rows.setdefault(one["title"], [(0.0, 0.0)] * len(reports))
            row[number] = (one["gpu_ns"] / 1e6 / ranks, float(one["calls"]))
    known = {
        title: row
        for title, row in rows.items()
        if all(calls or not left_out for (_, calls), left_out in zip(row, more, strict=True))
    }
    return known, len(rows) - len(known)


def _work(title: str, row: Sequence[tuple[float, float]], status: str) -> ComparedWork:
    ms, launches = tuple(one for one, _ in row), tuple(one for _, one in row)
    if not launches[0]:
        status = NEW
    elif not any(launches[1:]):
        status = GONE
    return ComparedWork(title, status, ms, launches)


def _signatures(report: Report) -> Iterator[tuple[float, float, Mapping[str, Any]]]:
    """Yields the time in ns and the launches of each signature in a step of one GPU, and its entry in the report."""
    simulated = report["simulated"]
    return signature_times(simulated, _steps_of_all(report, simulated["kernels"]["window"]))


def _text(one: Mapping[str, Any]) -> str:
    return str(one.get("signature", one["title"]))


def _steps_of_all(report: Report, window: str) -> int:
    """The steps of all GPUs in a window. Runs of different numbers of steps compare by the step, so those of whole runs
    are divided by all their steps.
    """
    simulated = report["simulated"]
    ranks = simulated["ranks"]
    if window == "steps":
        return steps_that_count(simulated, ranks)
    return max(sum(rank.get("steps", 0) for rank in ranks) or len(ranks), 1)


def _without_sizes(signature: str) -> str:
    """The parts of the signature without sizes: kind, kernel or call, and op."""
    kind, *rest = signature.split(";")
    if kind in COPIES or len(rest) < 3:
        return ";".join([kind, *rest[:1]])
    return ";".join([kind, rest[0], rest[-2]])


def _title_without_sizes(signature: str, title: str) -> str:
    """The title without sizes: ``gemm bf16 (aten::mm)``."""
    words = [word for word in title.split() if "=" not in word]
    kind = signature.partition(";")[0]
    if kind in COPIES:
        words = [word for word in words if not word.replace(",", "").isdigit() and word != "bytes"]
    return " ".join(words)


# ---- calls and memory ------------------------------------------------------------------------------------------------

Value = TypeVar("Value")


def without_calls(reports: Sequence[Report]) -> list[int]:
    """The numbers of the runs whose calls are not known: older reports, and replays of other numbers of ranks."""
    return [number for number, one in enumerate(reports) if "calls" not in one["simulated"]]


def calls(reports: Sequence[Report]) -> list[ComparedCalls]:
    """The collectives by their sizes, those of which a step has most bytes first; none if some run does not know
    them.
    """
    return _calls(reports, "collectives", lambda one: (one["title"],), lambda key: key)


def waits(reports: Sequence[Report]) -> list[ComparedCalls]:
    """The lines at which hosts wait for their GPUs; none if some run does not know them. A line is recognised by its
    text and its function, as lines before it come and go.
    """
    return _calls(
        reports,
        "waits",
        lambda one: (one["on"], one["code"] or one["site"], _function(one["site"])),
        lambda key: key[2],
    )


def _calls(
    reports: Sequence[Report],
    name: str,
    key_of: Callable[[Mapping[str, Any]], tuple[str, ...]],
    alias: Callable[[tuple[str, ...]], Hashable],
) -> list[ComparedCalls]:
    if without_calls(reports):
        return []
    tables: list[dict[tuple[str, ...], tuple[float, float]]] = []
    entries: dict[tuple[str, ...], Mapping[str, Any]] = {}
    for report in reports:
        found = report["simulated"]["calls"]
        steps = _steps_of_all(report, found["window"])
        table: dict[tuple[str, ...], tuple[float, float]] = {}
        for one in found[name]:
            key = key_of(one)
            entries[key] = one
            count, nbytes = table.get(key, (0.0, 0.0))
            table[key] = count + one["calls"] / steps, nbytes + one["calls"] * one.get("nbytes", 0) / steps
        tables.append(table)
    rows = _rows(tables, alias, (0.0, 0.0))
    return [
        ComparedCalls(
            entries[key].get("title", ""),
            entries[key]["site"],
            entries[key]["code"],
            tuple(count for count, _ in row),
            tuple(nbytes for _, nbytes in row),
        )
        for key, row in sorted(rows.items(), key=lambda item: (-max(nbytes for _, nbytes in item[1]), item[0]))
    ]


def _function(site: str) -> str:
    """The function of a site's text, with the library's line that made the call: ``in train (via ...)``."""
    return site.partition(" ")[2]


def _rows(
    tables: Sequence[Mapping[tuple[str, ...], Value]], alias: Callable[[tuple[str, ...]], Hashable], nothing: Value
) -> dict[tuple[str, ...], list[Value]]:
    """The values of all tables by key. A key of a later table that the first one lacks is taken for one of the first
    that it lacks in turn, if both have the same alias and the same value: then its line has only moved, or another
    word of it has changed.
    """
    rows = {key: [value] + [nothing] * (len(tables) - 1) for key, value in tables[0].items()}
    for number, table in enumerate(tables[1:], 1):
        left = [key for key in tables[0] if key not in table]
        for key, value in table.items():
            same = key
            if key not in tables[0]:
                same = next((one for one in left if alias(one) == alias(key) and tables[0][one] == value), key)
                left = [one for one in left if one != same]
            rows.setdefault(same, [nothing] * len(tables))[number] = value
    return rows


def memory_parts(reports: Sequence[Report]) -> list[Held]:
    """The parts of the memory of each run's fullest GPU, the largest first; none if some run does not know them."""
    fullest = _fullest(reports)
    tables: list[dict[tuple[str, ...], int]] = [
        {(name,): nbytes for name, nbytes in one["parts"].items()} for one in fullest
    ]
    return _held(tables, lambda key: key, lambda key: (key[0], ""))


def holders(reports: Sequence[Report]) -> list[Held]:
    """The lines that asked for the memory of each run's fullest GPU, the largest first. A report lists the largest
    ones.
    """
    tables: list[dict[tuple[str, ...], int]] = []
    sites: dict[tuple[str, ...], str] = {}
    for fullest in _fullest(reports):
        table: dict[tuple[str, ...], int] = defaultdict(int)
        for one in fullest["holders"]:
            key = one["part"], one["op"], _without_folder(one["site"])
            sites[key] = one["site"]
            table[key] += one["nbytes"]
        tables.append(table)

    def title_of(key: tuple[str, ...]) -> tuple[str, str]:
        part, op, _ = key
        return " at ".join(filter(None, [op, sites[key]])) or "others", part

    return _held(tables, lambda key: (*key[:2], _function(key[2])), title_of)


def _without_folder(site: str) -> str:
    """The site's text without the folders of its file: a checkout may be anywhere."""
    file, blank, rest = site.partition(" ")
    return f"{file.rpartition('/')[2]}{blank}{rest}"


def _held(
    tables: Sequence[Mapping[tuple[str, ...], int]],
    alias: Callable[[tuple[str, ...]], Hashable],
    title_of: Callable[[tuple[str, ...]], tuple[str, str]],
) -> list[Held]:
    if not tables:
        return []
    rows = _rows(tables, alias, 0)
    ordered = sorted(rows.items(), key=lambda item: (-max(item[1]), item[0]))
    return [Held(*title_of(key), tuple(row)) for key, row in ordered]


def _fullest(reports: Sequence[Report]) -> list[Mapping[str, Any]]:
    """The reports' figures of each run's fullest GPU; empty if one report has none."""
    found = [report["simulated"].get("memory", {}).get("fullest") for report in reports]
    return [one for one in found if one] if all(found) else []
