"""Run the jobs of a file and say whether each keeps within its budget of memory, time and change since a baseline.

The exit code is 0 if all do and 1 if one does not.
"""

from __future__ import annotations

import argparse
import sys
from functools import partial
from pathlib import Path


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = "phantora-async check FILE [--job NAME ...] [--update] [--junit FILE] [--markdown FILE] [--json]"
    parser.add_argument("file", type=Path, metavar="FILE", help="jobs and their budgets, in TOML; see docs/check.md")
    parser.add_argument("--job", action="append", default=[], metavar="NAME", help="run this job only; may be repeated")
    parser.add_argument(
        "--baseline", type=Path, metavar="FILE", help="figures to compare with (default: FILE.baseline.json)"
    )
    parser.add_argument(
        "--update", action="store_true", help="store the figures of these runs as the new baseline; no change is judged"
    )
    parser.add_argument("--parallel", type=int, default=1, metavar="N", help="jobs at a time (default: %(default)s)")
    parser.add_argument(
        "--again", action="store_true", help="run also jobs of which nothing changed since they were run last"
    )
    parser.add_argument("--run-dir", type=Path, metavar="DIR", help="directory for the jobs' run directories")
    parser.add_argument("--junit", type=Path, metavar="FILE", help="write JUnit XML")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="write a table in Markdown")
    parser.add_argument("--json", action="store_true", help="print JSON in place of text")


def run(given: argparse.Namespace) -> int:
    from phantora_async.gate import verdict_formats
    from phantora_async.gate.checked import check, check_writable

    check_writable(filter(None, (given.junit, given.markdown)))
    checked = check(
        given.file,
        jobs=given.job,
        baseline=given.baseline,
        update=given.update,
        parallel=given.parallel,
        run_dir=given.run_dir,
        again=given.again,
        told=partial(print, file=sys.stderr if given.json else sys.stdout, flush=True),
    )
    if given.junit is not None:
        checked.write_junit(given.junit)
    if given.markdown is not None:
        checked.write_markdown(given.markdown)
    print(verdict_formats.as_json(checked.jobs) if given.json else checked.closing)
    return 0 if checked.good else 1
