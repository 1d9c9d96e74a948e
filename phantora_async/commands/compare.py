"""Compare runs with the first one: what was set up differently, and what that changed."""

from __future__ import annotations

import argparse
import json
import sys


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = "phantora-async compare RUN_A RUN_B [RUN_C ...] [--fail-if RULES] [--json]"
    parser.add_argument("runs", nargs="+", metavar="RUN", help="run directories or JSON reports, two or more")
    parser.add_argument(
        "--fail-if",
        metavar="RULES",
        help="end with exit code 1 if a run breaks one of these rules against the first: 'step > +3%%, memory > +1%%, "
        "mfu < -2%%'; figures: memory, allocated, step, mfu",
    )
    parser.add_argument("--json", action="store_true", help="print JSON, with all kernels")


def run(given: argparse.Namespace) -> int:
    from phantora_async.api.results import compare, load
    from phantora_async.budget import RULES, Rules, broken_text, figures_of
    from phantora_async.errors import UsageError

    rules = Rules.of(given.fail_if or "")
    if given.fail_if is not None and not rules.rules:
        raise UsageError(f"--fail-if {given.fail_if!r}: no rule", RULES)
    runs = [load(path) for path in given.runs]
    found = compare(*runs)
    print(json.dumps(found.document(), indent=1) if given.json else found)
    baseline = figures_of(runs[0].report)
    broken = [
        (name, broken_text(rules.rows(run.report, baseline))) for name, run in zip(found.names, runs, strict=True)
    ]
    broken = [(name, text) for name, text in broken[1:] if text]
    for name, text in broken:
        print(f"{name} breaks the rules: {text}", file=sys.stderr)
    return 1 if broken else 0
