"""Show the report of a finished run again."""

from __future__ import annotations

import argparse
import json
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
    try:
        document = json.loads(path.read_bytes())
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}", "a run prints the path of its report when it ends") from None
    except ValueError:
        raise UsageError(f"{path}: not a report: it is not JSON") from None
    from phantora_async.report import SCHEMA, terminal_report

    if not isinstance(document, dict) or document.get("schema") != SCHEMA:
        raise UsageError(f"{path}: not a report, or written by another version of phantora-async")
    world_size = document["simulated"]["world_size"]
    if given.rank is not None and not 0 <= given.rank < world_size:
        raise UsageError(f"--rank {given.rank}: the run had ranks 0 to {world_size - 1}")
    print(terminal_report(document, given.rank))
    return 0
