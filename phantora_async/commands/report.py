"""Show the report of a finished run again."""

from __future__ import annotations

import argparse
from pathlib import Path

from phantora_async.errors import UsageError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("path", metavar="FILE|DIR", help="a JSON report, or the run directory that has it")
    parser.add_argument(
        "--rank", type=int, metavar="RANK", help="list the GPU work of this rank (default: of all ranks)"
    )


def run(given: argparse.Namespace) -> int:
    path = Path(given.path)
    if path.is_dir():
        path /= "report.json"
    from phantora_async.report import ReportError, read, terminal_report

    try:
        document = read(path)
    except ReportError as error:
        hint = "" if path.exists() else "a run prints the path of its report when it ends"
        raise UsageError(str(error), hint) from None
    world_size = document["simulated"]["world_size"]
    if given.rank is not None and not 0 <= given.rank < world_size:
        raise UsageError(f"--rank {given.rank}: the run had ranks 0 to {world_size - 1}")
    print(terminal_report(document, given.rank))
    return 0
