"""Execute a recorded run again, without its script: on the same machine, or on another one."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import TYPE_CHECKING

from phantora_async.errors import NotWritten, UsageError
from phantora_async.wording import short

if TYPE_CHECKING:
    from phantora_async.replaying.machine import Changes

MOST_JOBS = 1024
"""Processes, each of which has the recording in memory."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("recording", type=Path, metavar="DIR", help="directory of `phantora-async run --record DIR`")
    parser.add_argument(
        "--cluster", metavar="NAME|FILE", help="other servers and another network, with their GPU and host"
    )
    parser.add_argument("--gpu", metavar="NAME|FILE", help="another GPU")
    parser.add_argument(
        "--host", choices=("modelled", "none"), help="what the script's Python code and CUDA calls cost, as in run"
    )
    parser.add_argument(
        "--kernel-times",
        action="append",
        default=[],
        metavar="FILE|none",
        help="table of measured kernel times, as in run",
    )
    parser.add_argument(
        "--nccl", action="append", default=[], metavar="NAME=VALUE",
        help="a variable of NCCL's environment, NCCL_ALGO=Ring for example; may be repeated",
    )  # fmt: skip
    parser.add_argument(
        "--set-network", action="append", default=[], metavar="KEY=NUMBER",
        help="another number in the cluster's [network] table, server.nic_gbps=800 for example; may be repeated",
    )  # fmt: skip
    parser.add_argument(
        "--slow-gpu", action="append", default=[], metavar="RANK=SHARE",
        help="the GPU of this rank works at this share of its speed, 17=0.7 for example; may be repeated",
    )  # fmt: skip
    parser.add_argument(
        "--fault", action="append", default=[], metavar="TEXT",
        help="what goes wrong, as in run, in place of what went wrong in the run; none: nothing; may be repeated",
    )  # fmt: skip
    parser.add_argument(
        "--steps", type=int, metavar="N",
        help="execute so many steps: those that were not recorded are copies of the last one that did the same as the "
        "one before it",
    )  # fmt: skip
    parser.add_argument("--faults", metavar="FILE", help="more of them, from a TOML file, as in run")
    parser.add_argument(
        "--allow", action="append", default=[], choices=("queries", "memory"),
        help="continue although the script would have got another answer: queries: to whether GPU work is complete; "
        "memory: to how much memory is free; may be repeated",
    )  # fmt: skip
    parser.add_argument(
        "--run-dir", metavar="DIR", help="directory for the report (default: a new one in phantora-runs/)"
    )
    parser.add_argument(
        "--report", metavar="FILE", help="where to write the JSON report (default: in the run directory)"
    )
    parser.add_argument(
        "--variants", type=Path, metavar="FILE",
        help="replay on each of the machines of this TOML file, and print what a step takes; see docs/replay.md",
    )  # fmt: skip
    parser.add_argument("--table", type=Path, metavar="FILE", help="with --variants: write the figures as CSV, too")
    parser.add_argument(
        "--jobs", type=int, default=0, metavar="N", help="with --variants: processes (default: one for each processor)"
    )


def run(given: argparse.Namespace) -> int:
    return _replay(given) if given.variants is None else _variants(given)


def _variants(given: argparse.Namespace) -> int:
    from phantora_async.recording import load
    from phantora_async.replaying.machine import Changes
    from phantora_async.replaying.table import as_csv, as_text
    from phantora_async.replaying.variants import play_all, read_variants

    if not 0 <= given.jobs <= MOST_JOBS:
        raise UsageError(f"--jobs {given.jobs}: expected 1 to {MOST_JOBS:,}, or 0: one for each processor")
    if _changes(given) != Changes():
        raise UsageError("--variants excludes other machines on the command line", "name them in the file")
    variants = read_variants(given.variants)
    load(given.recording)  # a file that is none is told before processes start
    jobs = given.jobs or len(os.sched_getaffinity(0))
    outcomes = list(play_all(given.recording, variants, frozenset(given.allow), jobs))
    print(as_text(outcomes))
    if given.table is not None:
        try:
            given.table.write_text(as_csv(outcomes))
        except OSError as error:
            raise NotWritten(f"cannot write {short(given.table)}: {error.strerror}") from None
        print(f"table: {short(given.table)}")
    return 0


def _replay(given: argparse.Namespace) -> int:
    from phantora_async.api.replays import written
    from phantora_async.report import terminal_report

    done = written(given.recording, _changes(given), given.allow, given.run_dir, given.report)
    print(terminal_report(done.replayed.report))
    for remark in done.remarks():
        print(remark)
    print(f"report: {short(done.path)}")
    print(f"more:   phantora-async report {short(done.path)} -v")
    return 0


def _changes(given: argparse.Namespace) -> Changes:
    from phantora_async.replaying.machine import Changes

    lists = (given.kernel_times, given.nccl, given.set_network, given.slow_gpu, given.fault)
    kernel_times, nccl, network, slow, fault = map(tuple, lists)
    return Changes(
        given.cluster, given.gpu, given.host, kernel_times, nccl, network, slow, fault, given.faults, given.steps
    )
