"""Say whether a run can work here: checks this machine, the ranks' interpreter, and the private parts of PyTorch and
Python that the emulation uses, which any version may change. The exit code is 0 if a run can work, else 69.
"""

from __future__ import annotations

import argparse
import dataclasses
import json

from phantora_async.errors import ExitCode, UsageError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--python", metavar="PATH", help="the interpreter of the ranks (default: this one)")
    parser.add_argument("-n", "--ranks", type=int, default=8, metavar="N", help="ranks of the run (default: 8)")
    parser.add_argument("-v", "--verbose", action="store_true", help="list all private names, with their purposes")
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(given: argparse.Namespace) -> int:
    if given.ranks < 1:
        raise UsageError(f"--ranks {given.ranks}: expected at least 1")
    from phantora_async.config import find_python
    from phantora_async.doctor import interpreter, machine, text

    python = find_python(given.python)
    ranks = interpreter.ask(python)
    checks = [
        *machine.checks(given.ranks),
        *machine.of_isolation(interpreter.why_not_isolated()),
        *machine.of_ranks(ranks),
    ]
    fails = [check for check in checks if check.state == machine.FAILS]
    notes = sum(check.state == machine.NOTE for check in checks)
    verdict = (
        f"no run can work: {', '.join(check.name for check in fails)}"
        if fails
        else f"a run can work{f' ({notes} notes above)' if notes else ''}"
    )
    document = {
        "can_run": not fails,
        "verdict": verdict,
        "checks": [dataclasses.asdict(check) for check in checks],
        "ranks": ranks,
    }
    print(json.dumps(document, indent=2) if given.json else "\n".join(text.lines(document, given.verbose)))
    return ExitCode.ENVIRONMENT if fails else 0
