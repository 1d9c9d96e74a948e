"""Run an unmodified training script on emulated GPUs, started as torchrun would start it."""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

from phantora_async.config import (
    CLOCKS,
    DEFAULT_CLUSTER,
    DEFAULT_MOE,
    HOST_MODES,
    ISOLATIONS,
    LOOP_TURNS,
    NETWORKS,
    STALL_TIMEOUT_S,
    resolve,
)
from phantora_async.errors import Interrupted, NotWritten, exit_codes_help
from phantora_async.remote.wire import TOKEN_VARIABLE
from phantora_async.trace_request import FORMS
from phantora_async.virtual_time.speculation_policy import POLICIES
from phantora_async.wording import short

MOST_NAMED = 4
"""Files of a trace that are named."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = (
        "phantora-async run [-n WORLD | --nnodes N --nproc-per-node GPUS] [options] "
        "(SCRIPT | -m MODULE | --launcher -- COMMAND) [arguments]"
    )
    parser.epilog = exit_codes_help()
    job = parser.add_argument_group("job")
    job.add_argument(
        "-n",
        type=int,
        metavar="WORLD",
        help="number of GPUs, one rank each; with 8 per server, 12 need two servers (default: 1)",
    )
    job.add_argument("--nnodes", type=int, metavar="N", help="number of servers, each with --nproc-per-node GPUs")
    job.add_argument(
        "--nproc-per-node",
        "--nproc_per_node",
        type=int,
        metavar="GPUS",
        help="GPUs per server (default: as many as the cluster's servers have)",
    )
    job.add_argument("-m", "--module", action="store_true", help="SCRIPT is the name of a module, as with python -m")
    job.add_argument(
        "--launcher",
        action="store_true",
        help="what follows is a command that starts the ranks of one server; it is started once on each server, as on "
        "a cluster: --launcher -- torchrun --nproc-per-node 8 train.py",
    )
    job.add_argument(
        "--python", metavar="PATH", help="Python interpreter of the environment that has PyTorch (default: this one)"
    )
    job.add_argument(
        "--preload",
        metavar="MODULE",
        action="append",
        default=[],
        help="import MODULE once for all ranks, which saves memory and time; may be repeated",
    )
    job.add_argument(
        "--no-auto-preload",
        action="store_true",
        help="import for all ranks what --preload names and nothing more; otherwise also what the script imports from "
        "installed packages, if each rank would import the same",
    )
    job.add_argument(
        "--compile-cache",
        metavar="DIR|off",
        help="where torch.compile and Triton keep what they compile for later runs, and what is known of the script's "
        "imports; off: nowhere "
        "(default: ~/.cache/phantora-async)",
    )
    job.add_argument(
        "--steps",
        type=int,
        metavar="N",
        help="end the run in good order, with its report, when every rank has done N optimizer steps",
    )
    job.add_argument(
        "--until",
        metavar="TIME",
        help="end the run in good order, with its report, at this virtual time: 500ms, 10s, 2m, 1h",
    )
    machine = parser.add_argument_group("emulated machine")
    machine.add_argument(
        "--cluster",
        metavar="NAME|FILE",
        default=DEFAULT_CLUSTER,
        help="servers and network (default: %(default)s)",
    )
    machine.add_argument(
        "--gpu", metavar="NAME|FILE", help="GPU in place of the cluster's own; names: phantora-async profiles list"
    )
    machine.add_argument(
        "--host",
        choices=HOST_MODES,
        default=HOST_MODES[0],
        help="cost of the script's Python code and CUDA calls: modelled (a calibrated cost per operation, default), "
        "measured (CPU time of this machine), or none",
    )
    machine.add_argument(
        "--clock",
        choices=CLOCKS,
        default=CLOCKS[0],
        help="when ranks are told the virtual time: when it is certain (exact, default), or at once, which is faster "
        "but may be wrong (optimistic)",
    )
    machine.add_argument(
        "--speculation",
        choices=POLICIES,
        default=POLICIES[0],
        help="when to simulate ahead of the slowest rank; changes the simulator's speed, not the results "
        "(default: %(default)s)",
    )
    machine.add_argument(
        "--moe",
        metavar="POLICY",
        default=DEFAULT_MOE,
        help="how tokens spread over the experts of a mixture of experts, as the routers' scores are not computed: "
        "balanced, zipf:EXPONENT, random:SEED, or trace:FILE with the experts' loads, a line for each layer "
        "(default: %(default)s)",
    )
    machine.add_argument(
        "--value",
        metavar="LINE=EXPR",
        action="append",
        default=[],
        help="what the script reads at a line where nobody computed what it reads, such as a loss: "
        "--value 'train.py:42=2.5*exp(-step/100)'. EXPR may use n (reads at this line before), step (steps that have "
        "ended), rank, random(), and functions of mathematics; or it is MODULE:FUNCTION, called with these. LINE alone "
        "is a line of SCRIPT. May be repeated",
    )
    machine.add_argument(
        "--no-shared-weights",
        action="store_true",
        help="each rank initialises its CPU tensors itself; otherwise ranks that would draw the same numbers draw them "
        "once and share the memory until they write to it",
    )
    machine.add_argument(
        "--isolation",
        choices=ISOLATIONS,
        default=ISOLATIONS[0],
        help="full: each emulated server has its own processes, host name, network, /tmp and /dev/shm; none: servers "
        "share this machine's; auto: full where the kernel permits it, else none (default: %(default)s)",
    )
    machine.add_argument(
        "--network",
        choices=NETWORKS,
        help="private: isolated servers reach each other and nothing else (default); host: they have this machine's "
        "network, for scripts that download",
    )
    several = parser.add_argument_group("several machines")
    several.add_argument(
        "--listen",
        metavar="HOST:PORT",
        help="run the servers on other machines, which join with `phantora-async join`; this one coordinates "
        "(port 0: any free one)",
    )
    several.add_argument(
        "--machines", type=int, default=1, metavar="N", help="how many machines join (default: %(default)s)"
    )
    several.add_argument(
        "--token-file",
        type=Path,
        metavar="FILE",
        help=f"file with the token that machines must know (default: the environment variable {TOKEN_VARIABLE}, else a "
        "new one, in the file `token` of the run directory)",
    )
    output = parser.add_argument_group("output")
    output.add_argument(
        "--run-dir", metavar="DIR", help="directory for logs and the report (default: a new one in phantora-runs/)"
    )
    output.add_argument(
        "--report", metavar="FILE", help="where to write the JSON report (default: report.json in the run directory)"
    )
    output.add_argument(
        "--reasons",
        action="store_true",
        help="tell why a step takes as long as it does: its critical path, what costs most, and what "
        "a resource that is twice as fast would change; see docs/seeing.md",
    )
    output.add_argument(
        "--trace",
        metavar="FILE",
        help=f"write a trace of ranks, GPUs and links: {FORMS}; docs/seeing.md says which tools read it",
    )
    output.add_argument(
        "--trace-ranks", metavar="RANKS", help="ranks that the trace shows, such as 0,8-15 (default: all)"
    )
    output.add_argument(
        "--trace-steps",
        metavar="STEPS",
        help="steps that the trace shows, such as 3 or 3-5; the first is 1 (default: all)",
    )
    output.add_argument(
        "--show-ranks",
        metavar="RANKS",
        default="0",
        help="ranks whose output is shown, such as 0,3, or all, or none (default: 0)",
    )
    output.add_argument(
        "--stall-timeout",
        metavar="SECONDS",
        type=float,
        default=STALL_TIMEOUT_S,
        help="end the run when ranks have waited for so long, in real time, for a rank that makes no visible progress, "
        "or when no rank has made any (default: %(default)g; 0: no limit)",
    )
    output.add_argument(
        "--loop-turns",
        metavar="N",
        type=int,
        default=LOOP_TURNS,
        help="end the run when a loop that only a value can end which nobody computed has gone round N times "
        "(default: %(default)s; 0: no limit but --stall-timeout)",
    )
    output.add_argument(
        "--no-progress",
        action="store_true",
        help="show no status (otherwise: a line on a terminal, else one every 30 s)",
    )
    output.add_argument("--profile-simulator", action="store_true", help=argparse.SUPPRESS)  # bench asks for it
    parser.add_argument("script", nargs="?", metavar="SCRIPT", help=argparse.SUPPRESS)
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)


def run(given: argparse.Namespace) -> int:
    config = resolve(given)
    for remark in config.remarks:
        print(f"phantora-async: {remark}", file=sys.stderr)
    # Imported only when the command line is known to be good: they take longer to import than everything else.
    import uvloop

    from phantora_async.report import terminal_report, to_json
    from phantora_async.session import Session

    profile = None
    if given.profile_simulator:
        from phantora_async.bench.profile import SimulatorProfile

        profile = SimulatorProfile()
        profile.start()
    with _handlers_kept():
        outcome = uvloop.run(Session(config, profile.sample if profile is not None else None).run())
        if profile is not None:
            profile.write(config.run_dir)
        unwritten = _write(config.report, to_json(outcome.report))
    logs = f"logs: {short(config.run_dir)}/rank*.log"
    if outcome.failure is not None:
        if isinstance(outcome.failure, Interrupted):
            print(terminal_report(outcome.report))
        outcome.failure.hint = f"{unwritten or f'report: {short(config.report)}'}; {logs}"
        raise outcome.failure
    print(terminal_report(outcome.report))
    if config.trace is not None:
        print(f"trace:  {', '.join(short(path) for path in config.trace.files()[:MOST_NAMED])}")
    if outcome.unwritten:
        raise NotWritten(outcome.unwritten, f"report: {short(config.report)}; {logs}")
    if unwritten:
        raise NotWritten(unwritten, f"its text is printed above; {logs}")
    print(f"report: {short(config.report)}; {logs}")
    print(f"again:  phantora-async report {short(config.report)}")
    return 0


@contextlib.contextmanager
def _handlers_kept() -> Iterator[None]:
    """Puts back the signal handlers that a session replaces, so that nothing interrupts the writing of the report."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _write(report: Path, content: bytes) -> str:
    """Writes a file completely or not at all; pipes and devices (`/dev/stdout`) directly. Returns why it could not."""
    in_place = report.is_symlink() or (report.exists() and not report.is_file())
    partial = report if in_place else report.with_name(f".{report.name}.{os.getpid()}")
    try:
        partial.write_bytes(content)
        if not in_place:
            partial.replace(report)
    except OSError as error:
        if not in_place:
            partial.unlink(missing_ok=True)
        return f"cannot write the report {short(report)}: {error.strerror}"
    return ""
