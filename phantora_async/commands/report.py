"""Show the report of a finished run again, as text, JSON, CSV, Markdown or a page, and what such a job costs."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import get_args

from formats.files import write_whole
from phantora_async.api.tables import Table
from phantora_async.config import RUNS
from phantora_async.errors import NotWritten, UsageError
from phantora_async.spending import asked
from phantora_async.spending.text import lines
from phantora_async.wording import short

REPORT = "report.json"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "path",
        metavar="FILE|DIR",
        nargs="?",
        help=f"a JSON report, or the run directory that has it (default: the latest run in {RUNS}/)",
    )
    parser.add_argument(
        "--rank", type=int, metavar="RANK", help="list the GPU work of this rank (default: of all ranks)"
    )
    parser.add_argument(
        "--html",
        type=Path,
        metavar="FILE",
        help="write the report as a page for a browser: one file that needs no network",
    )
    parser.add_argument("-v", "--verbose", action="store_true", help="print all that the report has to say")
    asked.add_arguments(parser)
    forms = parser.add_mutually_exclusive_group()
    forms.add_argument(
        "--json",
        action="store_true",
        help="print the report as JSON; with a question about money or energy, the answer to it",
    )
    forms.add_argument("--csv", action="store_true", help="print one table (--table) as CSV; seconds, bytes, shares")
    forms.add_argument("--md", action="store_true", help="print the report as Markdown")
    forms.add_argument("--schema", action="store_true", help="print the JSON schema of reports; needs no report")
    parser.add_argument(
        "--table",
        choices=get_args(Table),
        default="figures",
        help="which table --csv prints (default: figures, one row for the run); collectives and reasons need a run "
        "with --reasons",
    )


def run(given: argparse.Namespace) -> int:
    if given.schema:
        from phantora_async.report import report_schema

        print(json.dumps(report_schema(), indent=1))
        return 0
    # Without a path the latest run is meant; a run directory stands for the report in it.
    path = Path(given.path) if given.path else _latest()
    if path.is_dir():
        path /= REPORT
    from phantora_async.report import ReportError, read, terminal_report

    try:
        document = read(path)
    except ReportError as error:
        # A file that is there and is no report needs no hint where reports are.
        hint = "" if path.exists() else "a run prints the path of its report when it ends"
        raise UsageError(str(error), hint) from None
    world_size = document["simulated"]["world_size"]
    if given.rank is not None and not 0 <= given.rank < world_size:
        raise UsageError(f"--rank {given.rank}: the run had ranks 0 to {world_size - 1}")
    if given.html is not None:
        from phantora_async.pages import page, view

        _write(given.html, page(view(document)).encode())
        print(f"page: {short(given.html)}")
        return 0
    # Options that ask what a job would cost change what `--json` means: it then prints their answer alone.
    if given.json and asked.is_asked(given):
        print(json.dumps(asked.answered(given, document), indent=1))
        return 0
    if given.json or given.csv or given.md:
        from phantora_async.api.results import load
        from phantora_async.api.tables import as_csv, as_markdown
        from phantora_async.report import to_json
        from phantora_async.wording import printable_json

        found = load(path)
        made = printable_json(to_json(dict(found.report)).decode()) if given.json else ""
        print(made or (as_csv(found, given.table) if given.csv else as_markdown(found)), end="")
        return 0
    spent = lines(asked.answered(given, document)) if asked.is_asked(given) else None
    print(terminal_report(document, given.rank, spent, given.verbose))
    return 0


def _latest() -> Path:
    """The report that was written last in the default folder of runs."""
    found = max(RUNS.glob(f"*/{REPORT}"), key=lambda path: path.stat().st_mtime_ns, default=None)
    if found is None:
        raise UsageError(f"no run in {RUNS}/ here has a report", "name a report or a run directory")
    return found


def _write(path: Path, content: bytes) -> None:
    """Writes the file. Raises NotWritten."""
    try:
        write_whole(path, content)
    except OSError as error:
        raise NotWritten(f"cannot write the page {short(path)}: {error.strerror}") from None
