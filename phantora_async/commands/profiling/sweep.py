"""Measure a standard grid of work on this machine's GPU, without a script, into a table of kernel times.

Interrupted and started again with the same file, it goes on where it was.
"""

from __future__ import annotations

import argparse
import time
from collections import Counter
from pathlib import Path

from phantora_async.config import find_python
from phantora_async.errors import UsageError
from phantora_async.terminal import Terminal

OUTPUT = "sweep.times.gz"


def add_arguments(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--sweep",
        action="store_true",
        help=f"measure a standard grid of kernels, into {OUTPUT}, or into -o FILE; goes on with a file that exists",
    )
    group.add_argument(
        "--families", metavar="NAME,...", default="", help="only these families (an unknown name lists all)"
    )
    group.add_argument(
        "--minutes", type=float, metavar="M", default=0.0, help="end after M minutes (default: when done)"
    )


def run(given: argparse.Namespace) -> int:
    from phantora_async.gpu_profile.bench import gpu_bench
    from phantora_async.gpu_profile.saving import GrowingTable
    from phantora_async.gpu_profile.signatures import SignatureBench
    from phantora_async.gpu_profile.sweep import FAMILIES, pieces
    from phantora_async.gpu_profile.sweeping import Sweep

    families = tuple(name for name in given.families.split(",") if name) or FAMILIES
    if unknown := [name for name in families if name not in FAMILIES]:
        raise UsageError(f"--families {unknown[0]}: no such family", f"families: {','.join(FAMILIES)}")
    if not given.minutes >= 0:  # nan, too
        raise UsageError(f"--minutes {given.minutes}: expected 0 or more")
    began = time.monotonic()
    with gpu_bench(find_python(given.python)) as bench:
        signatures = SignatureBench(bench)
        growing = GrowingTable(Path(given.output or OUTPUT), signatures.about, "phantora-async profile --sweep")
        waiting = list(pieces(families))
        done: Counter[str] = Counter()
        why: Counter[str] = Counter()
        measured, terminal = 0, Terminal(status=True)
        try:
            for batch, times, reasons in Sweep(bench, signatures).measure(waiting, growing.table.times):
                growing.add(times)
                measured += len(times)
                done.update(piece.family for piece in batch)
                why.update(reasons)
                terminal.status(f"{done.total()} of {len(waiting)} pieces, {measured} times")
                if given.minutes and time.monotonic() - began > 60 * given.minutes:
                    break
        finally:
            growing.save()
            terminal.close()
    for reason, count in why.most_common():
        print(f"not measured: {reason}" + (f" ({count} times)" if count > 1 else ""))
    rest = len(waiting) - done.total()
    print(
        f"{growing.path}: {measured} times measured in {time.monotonic() - began:.0f} s, "
        f"{len(growing.table.times)} in it"
    )
    if rest:
        print(f"{rest} pieces of work are left: repeat the command to measure them")
    return 0
