"""List the interpreters that `run --warm` keeps for later runs, or end them.

An interpreter that runs still use ends with the last of them.
"""

from __future__ import annotations

import argparse

from phantora_async.launch import warm_interpreters


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--stop", action="store_true", help="end all of them")


def run(given: argparse.Namespace) -> int:
    found = warm_interpreters.stop() if given.stop else warm_interpreters.find()
    for warm in found:
        print(f"{'ended: ' if given.stop else ''}{warm.text}")
    if not found:
        print("no interpreter is kept")
    return 0
