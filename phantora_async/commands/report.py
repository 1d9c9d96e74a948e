"""Show a run's report again, from the JSON that it wrote."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from phantora_async.errors import UsageError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("path", metavar="FILE|DIR", help="report.json of a run, or the run's directory")


def run(given: argparse.Namespace) -> int:
    path = Path(given.path)
    if path.is_dir():
        path /= "report.json"
    try:
        document = json.loads(path.read_bytes())
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}", "a run names its report at its end") from None
    except ValueError:
        raise UsageError(f"{path}: not a report (no JSON)") from None
    from phantora_async.report import SCHEMA, terminal_report

    if not isinstance(document, dict) or document.get("schema") != SCHEMA:
        raise UsageError(f"{path}: not a report of this version of phantora-async")
    print(terminal_report(document))
    return 0
