"""The pages that the book of truth writes of itself: families of jobs, what is off and why, and every job."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from formats.files import write_whole
from phantora_async.errors import NotWritten
from phantora_async.validation import calibration, tables
from phantora_async.validation.book import Book
from phantora_async.validation.kept_rows import KeptRow

DEVELOPED_ON = "h200"
OFF = 0.1
"""The relative error from which on a job is listed, with the cause."""
HEADER = """\
| job | GPUs | real | simulated | error | interval | allocated | reserved | in a fit | commit |
|---|---:|---:|---:|---:|---:|---:|---:|---|---|"""


def write(book: Book, rows: Sequence[KeptRow]) -> None:
    """Writes the tables into the page. Raises UsageError if it has no places for them, NotWritten if it cannot be
    written.
    """
    tables.write_into(book.page, "families", families(book, rows))
    tables.write_into(book.page, "intervals", intervals(rows))
    try:
        write_whole(book.details, details(book, rows).encode())
    except OSError as error:
        raise NotWritten(f"cannot write {book.details}: {error.strerror}") from None


def families(book: Book, rows: Sequence[KeptRow]) -> str:
    """A line a family, none left out, in the book's order."""
    lines = [
        "| jobs | how many | mean error | worst | intervals hold | mean width | allocated memory, mean and worst |",
        "| --- | ---: | ---: | ---: | ---: | ---: | --- |",
    ]
    for gpu, name in dict.fromkeys((family.gpu, family.name) for family in book.families):
        jobs = sum(len(one.jobs) for one in book.families if (one.gpu, one.name) == (gpu, name))
        lines.append(_family(f"{name} ({gpu})", jobs, [row for row in rows if (row.gpu, row.family) == (gpu, name)]))
    blind = [row for row in rows if not row.fitted]
    for bounds, words in ((("gpu",), "the GPU decides the step"), (("both", "host"), "the host may")):
        chosen = [row for row in blind if row.simulated is not None and row.bound in bounds]
        lines.append(_family(f"all in no fit, {words}", len(chosen), chosen))
    run = {job.job for _, job in book.jobs()}
    left = {job.job for one in book.not_run for job in one.jobs} - run
    return "\n".join(lines) + (f"\n\nMeasured and not run: {len(left)} ({book.details.name} says why)." if left else "")


def _family(name: str, jobs: int, rows: Sequence[KeptRow]) -> str:
    ran = [row for row in rows if row.error is not None]
    failed = sum(bool(row.failure) for row in rows)
    many = str(jobs) if len(ran) == jobs else f"{len(ran)} of {jobs}" + (f", {failed} failed" if failed else "")
    if not ran:
        return f"| {name} | {many} | | | | | |"
    errors = [abs(row.error or 0.0) for row in ran]
    held = [inside for row in ran for inside in row.holds()]
    widths = [width for row in ran if (width := row.width) is not None]
    memory = [abs(row.allocated) for row in ran if row.allocated is not None]
    cells = [
        name,
        many,
        f"{_mean(errors):.1%}",
        f"{max(errors):.1%}",
        f"{sum(held)}/{len(held)}",
        f"{_mean(widths):.0%}",
        f"{_mean(memory):.2%}, {max(memory):.2%}" if memory else "",
    ]
    return f"| {' | '.join(cells)} |"


def intervals(rows: Sequence[KeptRow]) -> str:
    """The table of coverage and width for jobs in no fit, as they are and with the factor that calibration asks for."""
    lines = [
        "| decided by | jobs | runs | held | width | held, with the others' factor | factor | width with it |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for one in calibration.calibrate(rows):
        lines.append(
            f"| {one.name} | {one.jobs} | {one.runs} | {one.holds_as_they_are:.0%} | {one.width:.0%} | {one.holds:.0%} "
            f"| {one.factor:.2f} | {one.needed_width:.0%} |"
        )
    return "\n".join(lines)


def off(book: Book, rows: Sequence[KeptRow]) -> str:
    """The list of jobs that are more than OFF away, by cause, the cause of the worst one first."""
    found = [row for row in rows if row.error is not None and abs(row.error) > OFF]
    by_cause: dict[str, list[KeptRow]] = {}
    for row in sorted(found, key=lambda row: -abs(row.error or 0.0)):
        by_cause.setdefault(book.causes.get(row.job, "not found"), []).append(row)
    lines = []
    for cause, chosen in by_cause.items():
        lines.append(f"- {cause}: {', '.join(f'{_name(row)} {row.error:+.1%}' for row in chosen)}")
    return "\n".join(lines) or "None."


def details(book: Book, rows: Sequence[KeptRow]) -> str:
    """The page with every job that was run, and those that were not."""
    text = (
        "# Every measured job, simulated\n\n"
        "Written by `phantora-async validate --all laboratory/programs/truth.toml`. "
        "Real and simulated: milliseconds a step.\n"
        "An error is the distance from the range of the real runs. In a fit: constants of the models were fitted to\n"
        "measurements of the job, or the shipped table has times of its trace. Memory that depends on timing is\n"
        "simulated as a range: its error is that of the figure of this range which is next to the real ones.\n"
        f"\n## More than {OFF:.0%} off, by cause\n\n{off(book, rows)}\n"
    )
    for gpu, name in dict.fromkeys((family.gpu, family.name) for family in book.families):
        chosen = [row for row in rows if (row.gpu, row.family) == (gpu, name)]
        text += f"\n## {name} ({gpu})\n\n" + "\n".join([HEADER, *map(line, chosen)]) + "\n"
    for one in book.not_run:
        text += f"\n## Not run ({one.gpu})\n\n{one.why}: {', '.join(job.job for job in one.jobs)}.\n"
    torch = sorted({row.torch for row in rows if row.torch})
    dates = sorted({row.date for row in rows})
    return text + f"\nSimulated {' to '.join(_ends(dates))} with torch {', '.join(torch)}.\n"


def line(row: KeptRow) -> str:
    if row.simulated is None:
        return f"| {row.job} | {row.world} | {_range(row)} | failed: {row.failure} | | | | | | {row.commit} |"
    speed = _speed(row)
    interval = "" if row.low is None or row.high is None else f"{speed(row.low)} to {speed(row.high)}"
    cells = [
        row.job,
        str(row.world),
        _range(row),
        speed(row.simulated),
        f"{row.error:+.1%}" if row.error else "0",
        interval,
        _share(row.allocated),
        _share(row.reserved),
        "yes" if row.fitted else "no",
        row.commit,
    ]
    return f"| {' | '.join(cells)} |"


def _range(row: KeptRow) -> str:
    speed = _speed(row)
    return " to ".join(_ends([speed(min(row.real)), speed(max(row.real))]))


def _speed(row: KeptRow) -> Callable[[float], str]:
    return lambda value: f"{value:,.0f} tokens/s" if row.is_rate else f"{value * 1e3:.1f}"


def _name(row: KeptRow) -> str:
    """A job, with its GPUs where the name says nothing of them."""
    gpus = f" ({row.gpu})" if row.gpu != DEVELOPED_ON else ""
    return f"{row.job}{gpus}"


def _share(error: float | None) -> str:
    return "" if error is None else f"{error:+.3%}" if error else "0"


def _ends(values: Sequence[str]) -> list[str]:
    return list(dict.fromkeys((values[0], values[-1]))) if values else []


def _mean(values: Iterable[float]) -> float:
    found = list(values)
    return sum(found) / len(found) if found else 0.0
