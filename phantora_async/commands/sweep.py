"""Try many configurations of a job and say which are best in time, memory and money, before a machine is rented.

The exit code is 0 if at least one trial gave figures, else 1. A sweep that is ended goes on where it was.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from phantora_async.study.trials.results import Result

ON = ("here", "ray")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = "phantora-async sweep FILE [--dir DIR] [--jobs N|auto] [--on ray] [--table FILE] [--html FILE]"
    parser.add_argument("file", type=Path, metavar="FILE", help="what to try, in TOML; see docs/sweep.md")
    parser.add_argument(
        "--dir",
        type=Path,
        metavar="DIR",
        help="directory for results, reports and recordings; what it has is not tried again (default: FILE.sweep)",
    )
    parser.add_argument(
        "--jobs",
        type=_jobs,
        default=1,
        metavar="N",
        help="trials at a time; auto: as many as cores and memory allow (default: %(default)s)",
    )
    parser.add_argument(
        "--on", choices=ON, default="here", help="where trials run: here, or as tasks of a Ray cluster (docs/sweep.md)"
    )
    parser.add_argument(
        "--prices", metavar="NAME|FILE", help="what an hour of a GPU costs (default: listed, of public pages)"
    )
    parser.add_argument("--keep-going", action="store_true", help="go on also if the first trial fails")
    parser.add_argument(
        "--again", action="store_true", help="run also trials of which nothing changed since they were run elsewhere"
    )
    parser.add_argument("--table", type=Path, metavar="FILE", help="write the figures, too: .csv, .json, .parquet, .md")
    parser.add_argument("--picture", type=Path, metavar="FILE", help="write the best ones as .png, .svg, .pdf")
    parser.add_argument("--html", type=Path, metavar="FILE", help="write a page with filters for a browser, one file")
    parser.add_argument("--json", action="store_true", help="print JSON in place of text")


def _jobs(text: str) -> int | str:
    if text != "auto" and not text.isdecimal():
        raise argparse.ArgumentTypeError(f"expected a number, or auto, found {text!r}")
    return text if text == "auto" else int(text)


def run(given: argparse.Namespace) -> int:
    from phantora_async.study.outcome.files import check_files
    from phantora_async.study.sweeping import sweep

    check_files(given.table, given.picture, given.html)
    swept = sweep(
        given.file,
        folder=given.dir,
        jobs=given.jobs,
        on=given.on,
        prices=given.prices,
        keep_going=given.keep_going,
        again=given.again,
        told=_told,
    )
    print(json.dumps(swept.document(), indent=1) if given.json else swept)
    if given.table is not None:
        swept.write_table(given.table)
    if given.html is not None:
        swept.write_page(given.html)
    if given.picture is not None:
        swept.plot(given.picture)
    return 0 if any(entry.result.good for entry in swept.trials) else 1


def _told(result: Result, known: int, total: int) -> None:
    from phantora_async.study.outcome.text import progress_line

    print(progress_line(result, known, total), file=sys.stderr, flush=True)
