"""Execute a recorded run again, without its script: on the same machine, or on another one."""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from phantora_async.errors import Interrupted, UsageError
from phantora_async.wording import short

if TYPE_CHECKING:
    from phantora_async.recording import Recording
    from phantora_async.replaying.kept_outcomes import KeptOutcomes
    from phantora_async.replaying.machine import Changes
    from phantora_async.replaying.variants import Outcome, Variant

MOST_JOBS = 1024
"""The most processes that replay at once; each has the recording in memory."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("recording", type=Path, metavar="DIR", help="directory of `phantora-async run --record DIR`")
    parser.add_argument(
        "--cluster", metavar="NAME|FILE", help="other servers and another network, with their GPU and host"
    )
    parser.add_argument(
        "--gpu", metavar="NAME|FILE", help="another GPU, in the servers that it is sold in if the run was in its GPU's"
    )
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
        "--nccl",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="a variable of NCCL's environment, NCCL_ALGO=Ring for example; may be repeated",
    )
    parser.add_argument(
        "--set-network",
        action="append",
        default=[],
        metavar="KEY=NUMBER",
        help="another number in the cluster's [network] table, server.nic_gbps=800 for example; may be repeated",
    )
    parser.add_argument(
        "--slow-gpu",
        action="append",
        default=[],
        metavar="RANK=SHARE",
        help="the GPU of this rank works at this share of its speed, 17=0.7 for example; may be repeated",
    )
    parser.add_argument(
        "--fault",
        action="append",
        default=[],
        metavar="TEXT",
        help="what goes wrong, as in run, in place of what went wrong in the run; none: nothing; may be repeated",
    )
    parser.add_argument(
        "--width",
        action="append",
        default=[],
        metavar="AXIS=SIZE",
        help="of a folded run: another number of replicas, dp=4096 for example; may be repeated",
    )
    parser.add_argument(
        "--replicas",
        choices=("shared", "each"),
        help="of a folded run: replicas to which the same happens are simulated once, or each is",
    )
    parser.add_argument(
        "--steps",
        type=int,
        metavar="N",
        help="execute so many steps: those that were not recorded are copies of the last one that did the same as the "
        "one before it",
    )
    parser.add_argument("--faults", metavar="FILE", help="more of them, from a TOML file, as in run")
    parser.add_argument(
        "--allow",
        action="append",
        default=[],
        choices=("queries", "memory", "width", "attributes"),
        help="continue although the script would have got another answer: queries: to whether GPU work is complete; "
        "memory: to how much memory is free; width: each rank's part of what ranks along a changed axis share stays "
        "as large as it was; attributes: to what kind of GPU it has (name, memory, SMs); may be repeated",
    )
    parser.add_argument(
        "--run-dir", metavar="DIR", help="directory for the report (default: a new one in phantora-runs/)"
    )
    parser.add_argument(
        "--report", metavar="FILE", help="where to write the JSON report (default: in the run directory)"
    )
    parser.add_argument(
        "--variants",
        type=Path,
        metavar="FILE",
        help="replay on each of the machines of this TOML file, and print what a step takes; see docs/replay.md",
    )
    parser.add_argument(
        "--table", type=Path, metavar="FILE", help="with --variants: write the figures, too, as .csv or .json"
    )
    parser.add_argument(
        "--results",
        type=Path,
        metavar="FILE",
        help="with --variants: keep what each variant comes to, a line of JSON each; what the file has is not played "
        "again, so that an interrupted command goes on",
    )
    parser.add_argument(
        "--jobs", type=int, default=0, metavar="N", help="with --variants: processes (default: one for each processor)"
    )


def run(given: argparse.Namespace) -> int:
    if given.variants is None:
        for option, value in (("--table", given.table), ("--results", given.results), ("--jobs", given.jobs or None)):
            if value is not None:
                raise UsageError(
                    f"{option} is for many machines: it needs --variants FILE", "leave it out, or name one"
                )
        return _replay(given)
    for option, value in (("--run-dir", given.run_dir), ("--report", given.report)):
        if value is not None:
            raise UsageError(f"{option}: a replay with --variants writes no report", "--table FILE writes the figures")
    return _variants(given)


def _variants(given: argparse.Namespace) -> int:
    from phantora_async.recording import load
    from phantora_async.replaying.kept_outcomes import KeptOutcomes
    from phantora_async.replaying.machine import Changes
    from phantora_async.replaying.table import check_path
    from phantora_async.replaying.variants import read_variants

    if not 0 <= given.jobs <= MOST_JOBS:
        raise UsageError(f"--jobs {given.jobs}: expected 1 to {MOST_JOBS:,}, or 0: one for each processor")
    if given.table is not None:
        check_path(given.table)
    if _changes(given) != Changes():
        raise UsageError("--variants excludes other machines on the command line", "name them in the file")
    variants, allowed = read_variants(given.variants), frozenset(given.allow)
    recording = load(given.recording)
    jobs = given.jobs or len(os.sched_getaffinity(0))
    known: dict[int, Outcome] = {}
    try:
        with ExitStack() as kept_open:
            kept = None
            if given.results is not None:
                kept = kept_open.enter_context(KeptOutcomes(given.results, recording, variants, allowed))
                known |= kept.known
            _play(recording, variants, allowed, jobs, known, kept)
    except KeyboardInterrupt:
        if known:
            _show(known, given.table)
        interrupted = Interrupted(f"interrupted: {len(known):,} of {len(variants):,} variants are known")
        interrupted.hint = "with --results FILE, an interrupted command goes on where it was"
        if given.results is not None:
            interrupted.hint = f"the same command goes on with {short(given.results)}"
        raise interrupted from None
    _show(known, given.table)
    return 0


def _play(
    recording: Recording,
    variants: Sequence[Variant],
    allowed: frozenset[str],
    jobs: int,
    known: dict[int, Outcome],
    kept: KeptOutcomes | None,
) -> None:
    """Plays the variants that are not in `known`, and adds their outcomes to it."""
    from phantora_async.replaying.variants import play_all
    from phantora_async.terminal import Terminal

    left = [number for number in range(len(variants)) if number not in known]
    terminal, began_s = Terminal(status=True), time.monotonic()
    try:
        for done, (place, outcome) in enumerate(
            play_all(recording, [variants[number] for number in left], allowed, jobs), 1
        ):
            known[left[place]] = outcome
            if kept is not None:
                kept.add(left[place], outcome)
            left_s = (time.monotonic() - began_s) / done * (len(left) - done)
            terminal.status(f"{len(known):,} of {len(variants):,} variants | about {left_s:,.0f} s left")
    finally:
        terminal.close()


def _show(known: Mapping[int, Outcome], table: Path | None) -> None:
    from phantora_async.replaying.table import as_text, write

    outcomes = [known[number] for number in sorted(known)]
    print(as_text(outcomes))
    if table is not None:
        write(table, outcomes)
        print(f"table: {short(table)}")


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

    lists = (given.kernel_times, given.nccl, given.set_network, given.slow_gpu, given.fault, given.width)
    kernel_times, nccl, network, slow, fault, width = map(tuple, lists)
    return Changes(
        given.cluster,
        given.gpu,
        given.host,
        kernel_times,
        nccl,
        network,
        slow,
        fault,
        given.faults,
        width,
        given.replicas,
        given.steps,
    )
