"""Say what to try with a recorded run: settings of NCCL, networks and the host, each simulated by a replay.

What the script itself decides is named with --try: the script is run with these arguments, too.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("recording", type=Path, metavar="DIR", help="directory of `phantora-async run --record DIR`")
    parser.add_argument(
        "--try",
        dest="arguments",
        action="append",
        default=[],
        metavar="ARGUMENTS",
        help="run the script with these further arguments: --try '--batch 2'; may be repeated; auto: batch sizes, "
        "parallelism, recomputation, types and compiling that its argparse options name, and changes of PyTorch: "
        "sharding, buckets, optimizers, waits",
    )
    parser.add_argument("--json", action="store_true", help="print JSON in place of text")


def run(given: argparse.Namespace) -> int:
    from phantora_async.study.advice import advise

    advice = advise(given.recording, given.arguments)
    print(json.dumps(advice.document, indent=1) if given.json else advice)
    return 0
