"""Measure the simulator itself: wall time, processor time and memory of emulated runs of several sizes.

Each size is a run of its own: a model sharded by FSDP2, or your script. Figures are of this machine, which should have
nothing else to do. They are added to a history, and compared with the last benchmark of the same machine and job.
"""

from __future__ import annotations

import argparse
import os
import shlex
import signal
import sys
from pathlib import Path

from phantora_async.errors import Interrupted, JobsFailed, UsageError
from phantora_async.wording import short

RANKS = "8,16,32"
DEFAULT_HISTORY = Path("~/.cache/phantora-async/bench.jsonl")
BUSY_SHARE = 0.3
"""The share of the processors above which other programs' load makes the figures say little."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    from phantora_async.bench.jobs import MODELS, SCALINGS

    parser.usage = "phantora-async bench [options] [SCRIPT [arguments]]"
    parser.add_argument(
        "--ranks", default=RANKS, metavar="N,...", help="numbers of ranks, such as 8,64,256 (default: %(default)s)"
    )
    parser.add_argument(
        "--scaling",
        choices=SCALINGS,
        default=SCALINGS[0],
        help="weak: each rank has the same work (default); strong: all together have the same; both",
    )
    parser.add_argument(
        "--model", choices=MODELS, default="tiny", help="the job, unless you name a SCRIPT (default: %(default)s)"
    )
    parser.add_argument("--steps", type=int, default=3, help="training steps of each run (default: %(default)s)")
    parser.add_argument(
        "--profile",
        action="store_true",
        help="also name the functions that take most time, in a further run of the last size",
    )
    parser.add_argument("--plot", type=Path, metavar="FILE", help="write a picture (.svg, .png)")
    parser.add_argument(
        "--history",
        type=Path,
        default=DEFAULT_HISTORY,
        metavar="FILE",
        help="where results are added, one JSON object a line (default: %(default)s)",
    )
    parser.add_argument(
        "--run-options", default="", metavar="TEXT", help="options for `phantora-async run`, as one quoted string"
    )
    parser.add_argument("script", nargs="?", metavar="SCRIPT", help=argparse.SUPPRESS)
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)


def run(given: argparse.Namespace) -> int:
    from phantora_async.bench import history, jobs, measurement, plot, tables

    if given.steps < 2:
        raise UsageError("--steps: at least 2, or there is no step after the first")
    script = Path(given.script) if given.script else None
    if script is not None and not script.is_file():
        raise UsageError(f"{short(script)}: no such file")
    if given.plot is not None:
        plot.check()
    job = jobs.BenchJob(given.model, given.steps, script, tuple(given.arguments), tuple(shlex.split(given.run_options)))
    cases = jobs.cases(_ranks(given.ranks), "weak" if script is not None else given.scaling)
    load = measurement.load()
    if load > BUSY_SHARE * len(os.sched_getaffinity(0)):
        print(f"this machine is busy (load {load:.1f}): wall times will be too long", file=sys.stderr)
    # SIGTERM is taken as Ctrl-C is: the cases that are done still go into the history.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    path = given.history.expanduser()
    points: list[measurement.Point] = []
    interrupted = False
    print(tables.HEADER, flush=True)
    try:
        for number, case in enumerate(cases, start=1):
            print(f"{number}/{len(cases)}: {case.name} ...", file=sys.stderr, flush=True)
            point, _ = measurement.measure(job, case, profile=False)
            points.append(point)
            print(tables.line(point), flush=True)
        # The profile is a run of its own: it slows the run down, which would spoil the figures of a case.
        if given.profile and not points[-1].failure:
            print(f"{cases[-1].name}, profiled ...", file=sys.stderr, flush=True)
            _, found = measurement.measure(job, cases[-1], profile=True)
            print("\n".join(tables.profile_lines(found)), flush=True)
    except KeyboardInterrupt:
        interrupted = True
    if points:
        entry = history.entry(job, points, measurement.torch_version(job), load, not interrupted)
        before = history.comparable(path, entry)
        history.append(path, entry)
        if before is not None:
            print("\n".join(history.comparison(before, entry)))
        if given.plot is not None:
            plot.plot(points, given.plot)
        print(f"history: {short(path)}" + (f"; picture: {short(given.plot)}" if given.plot is not None else ""))
    if interrupted:
        raise Interrupted(f"interrupted after {len(points)} of {len(cases)} runs")
    if failed := [f"{point.ranks} ranks" for point in points if point.failure]:
        raise JobsFailed(f"{len(failed)} of {len(points)} runs failed: {', '.join(failed)}")
    return 0


def _ranks(text: str) -> list[int]:
    try:
        found = [int(part) for part in text.split(",")]
    except ValueError:
        found = []
    if not found or min(found) < 1:
        raise UsageError(f"--ranks {text}: expected numbers of ranks, such as 8,64,256")
    return sorted(set(found))
