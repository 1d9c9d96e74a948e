"""Compare runs with the first one: what was set up differently, and what that changed."""

from __future__ import annotations

import argparse
import json


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = "phantora-async compare RUN_A RUN_B [RUN_C ...] [--json]"
    parser.add_argument("runs", nargs="+", metavar="RUN", help="run directories or JSON reports, two or more")
    parser.add_argument("--json", action="store_true", help="print JSON, with all kernels")


def run(given: argparse.Namespace) -> int:
    from phantora_async.api.results import compare

    found = compare(*given.runs)
    print(json.dumps(found.document(), indent=1) if given.json else found)
    return 0
