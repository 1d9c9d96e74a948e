"""Try many configurations of a job and say which are best in time, memory and money, before a machine is rented.

The exit code is 0 if at least one trial gave figures, else 1. A sweep that is ended goes on where it was.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from phantora_async.errors import NotWritten
from phantora_async.wording import short

if TYPE_CHECKING:
    from phantora_async.study.results import Result


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = "phantora-async sweep FILE [--dir DIR] [--jobs N] [--prices NAME|FILE] [--table FILE] [--json]"
    parser.add_argument("file", type=Path, metavar="FILE", help="what to try, in TOML; see docs/sweep.md")
    parser.add_argument(
        "--dir", type=Path, metavar="DIR",
        help="directory for results, reports and recordings; what it has is not tried again (default: FILE.sweep)",
    )  # fmt: skip
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="trials at a time (default: %(default)s)")
    parser.add_argument(
        "--prices", metavar="NAME|FILE", help="what an hour of a GPU costs (default: listed, of public pages)"
    )
    parser.add_argument("--keep-going", action="store_true", help="go on also if the first trial fails")
    parser.add_argument("--table", type=Path, metavar="FILE", help="write the figures as CSV, too")
    parser.add_argument("--json", action="store_true", help="print JSON in place of text")


def run(given: argparse.Namespace) -> int:
    from phantora_async.study.sweeping import sweep
    from phantora_async.study.text import as_csv

    swept = sweep(
        given.file, folder=given.dir, jobs=given.jobs, prices=given.prices, keep_going=given.keep_going, told=_told
    )
    print(json.dumps(swept.document(), indent=1) if given.json else swept)
    if given.table is not None:
        try:
            given.table.write_text(as_csv(swept.outcome), encoding="utf-8")
        except OSError as error:
            raise NotWritten(f"cannot write {short(given.table)}: {error.strerror}") from None
    return 0 if any(entry.result.good for entry in swept.trials) else 1


def _told(result: Result, known: int, total: int) -> None:
    from phantora_async.study.text import progress_line

    print(progress_line(result, known, total), file=sys.stderr, flush=True)
