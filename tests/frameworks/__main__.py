"""Runs jobs of frameworks and writes docs/data/frameworks.md.

python -m tests.frameworks --list
python -m tests.frameworks --write 'torchtitan-*'
"""

from __future__ import annotations

import argparse
import datetime
import sys
import tempfile
from fnmatch import fnmatch
from pathlib import Path

from . import document
from .job import Job
from .running import run
from .table import JOBS


def chosen(patterns: list[str], small: bool) -> list[Job]:
    jobs = [job for job in JOBS if not patterns or any(fnmatch(job.name, pattern) for pattern in patterns)]
    return [job for job in jobs if job.small or not small]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.frameworks", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="jobs, also as patterns (default: all)")
    parser.add_argument("--list", action="store_true", help="print the jobs and end")
    parser.add_argument("--small", action="store_true", help="only the small ones")
    parser.add_argument("--write", action="store_true", help="write the results into docs/data/frameworks.md")
    parser.add_argument("--keep", metavar="DIR", type=Path, help="keep what each job printed in DIR/NAME.txt")
    arguments = parser.parse_args()
    jobs = chosen(arguments.names, arguments.small)
    failed = 0
    for job in jobs:
        if arguments.list:
            print(f"{job.name:40} {job.framework.title}: {job.feature}")
            continue
        with tempfile.TemporaryDirectory(prefix="frameworks-") as folder:
            outcome = run(job, Path(folder))
        date = datetime.date.today().isoformat()
        if outcome.absent:
            print(f"{job.name}: skipped, {outcome.absent}", flush=True)
            continue
        row = document.row_of(outcome, date)
        failed += bool(outcome.faults) and not job.fails
        print(f"{job.name}: {row.result} ({row.wall})", flush=True)
        if arguments.keep:
            arguments.keep.mkdir(parents=True, exist_ok=True)
            (arguments.keep / f"{job.name}.txt").write_text(outcome.output)
        if arguments.write:
            rows = document.read(document.PATH.read_text()) if document.PATH.exists() else {}
            document.PATH.write_text(document.render(JOBS, rows | {document.key(job): row}))
    if arguments.write and not arguments.list and not jobs:
        print("no job has such a name", file=sys.stderr)
        return 2
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
