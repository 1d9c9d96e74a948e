"""Measure the kernels of a run's report that no table covers, on this machine's GPU and without the script."""

from __future__ import annotations

import argparse
import time
from pathlib import Path

from phantora_async.config import find_python
from phantora_async.terminal import Terminal

OUTPUT = "missing.times.gz"


def add_arguments(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--missing",
        metavar="REPORT",
        default="",
        help=f"measure what a run (its report.json or directory) had no measured times for, into {OUTPUT} unless -o "
        "names a file",
    )


def run(given: argparse.Namespace) -> int:
    from phantora_async.gpu_profile.bench import gpu_bench
    from phantora_async.gpu_profile.missing import read_report
    from phantora_async.gpu_profile.saving import GrowingTable
    from phantora_async.gpu_profile.signatures import NotMeasured, SignatureBench

    used = read_report(Path(given.missing))
    missing = used.missing()
    if not missing:
        print(f"{given.missing}: every kernel has a measured time")
        return 0
    began = time.monotonic()
    # The report's other kernels had measured times: what they cover is where counting begins.
    covered, refused = 1.0 - sum(missing.values()), list[tuple[float, str, str]]()
    with gpu_bench(find_python(given.python)) as bench:
        signatures = SignatureBench(bench)
        growing = GrowingTable(Path(given.output or OUTPUT), signatures.about, "phantora-async profile --missing")
        known = growing.table.times
        # The output may already hold times of an earlier, interrupted command: these are not measured again.
        covered += sum(share for signature, share in missing.items() if used.keys[signature] in known)
        waiting = [signature for signature in missing if used.keys[signature] not in known]
        tried, terminal = 0, Terminal(status=True)
        try:
            for signature, found in signatures.measure(waiting):
                tried += 1
                if isinstance(found, NotMeasured):
                    refused.append((missing[signature], used.titles[signature], found.reason))
                else:
                    growing.add([found])
                    covered += missing[signature]
                terminal.status(f"{tried} of {len(waiting)} signatures")
        finally:
            # Measuring takes long: what an interrupted command has measured is kept.
            growing.save()
            terminal.close()
    for share, title, reason in sorted(refused, reverse=True):
        print(f"{share:6.1%} not measured: {title}: {reason}")
    print(f"{growing.path}: {tried - len(refused)} times measured in {time.monotonic() - began:.0f} s")
    print(f"GPU time covered by measured times: {covered:.1%}")
    return 0
