"""`profile --host` measures this machine's host in about a minute: what Python, PyTorch and the CUDA driver take here.
`--quick` finds in seconds how fast it is compared with a host measured before.

With GPUs the driver's calls are measured as well; without one they are taken from a host measured before.
"""

from __future__ import annotations

import argparse
import sys
import time
from datetime import date
from math import hypot
from pathlib import Path
from typing import TYPE_CHECKING

from formats.files import write_whole
from phantora_async.config import find_python
from phantora_async.errors import EnvironmentUnusable, NotWritten, UsageError
from profiles import AGAIN, CALL_KINDS, WORK_KINDS, Fit, ProfileError, Spread, fit, host_toml, load_host, scale

if TYPE_CHECKING:
    from phantora_async.host_profile import Measurement

OUTPUT = "host.toml"
KNOWN_HOST = "xeon-h200"
"""Costs that the programs say little about stay near this host's."""
PROBES = ("small_operators", "fsdp_optimizer")
"""The programs of `--quick`: a loop of kernel launches, and a step of FSDP2 with its optimizer."""
PROBES_ERROR = 0.10
"""The relative standard deviation of the time of other programs from the known host's time multiplied by the probes'
factor.
"""
DRIFT = 0.15
"""The relative standard deviation of a host's speed between its measurement and a job: docs/host.md."""


def add_arguments(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--host", action="store_true", help=f"measure the host, into {OUTPUT} unless -o names a file")
    group.add_argument(
        "--rounds", type=int, default=10, help="how many times each program is timed twice (default: %(default)s)"
    )
    group.add_argument(
        "--quick",
        action="store_true",
        help=f"with two programs only: all costs are those of {KNOWN_HOST} times a factor",
    )
    group.add_argument("--gpus", type=int, metavar="N", help="use N GPUs (default: all, 8 at most; 0: none)")


def run(given: argparse.Namespace) -> int:
    from phantora_async import local_gpus
    from phantora_async.host_profile import measure

    target = Path(given.output or OUTPUT)
    if given.rounds < 1:
        raise UsageError(f"--rounds {given.rounds}: at least 1")
    if target.suffix != ".toml" or not target.absolute().parent.is_dir():
        raise UsageError(f"--output {target}: expected a file in an existing folder whose name ends in .toml")
    python = find_python(given.python)
    gpus = min(8, len(local_gpus.names(python)))
    if given.gpus is not None:
        if not 0 <= given.gpus <= gpus:
            raise UsageError(f"--gpus {given.gpus}: PyTorch sees {gpus} here")
        gpus = given.gpus
    try:
        known = load_host(KNOWN_HOST)
    except ProfileError as error:
        raise UsageError(str(error)) from None
    command = f"phantora-async profile --host{' --quick' if given.quick else ''}"
    began = time.monotonic()
    measured = measure(
        python,
        gpus,
        given.rounds,
        known,
        lambda what: print(f"{what} ...", file=sys.stderr, flush=True),
        PROBES if given.quick else (),
    )
    try:
        runs = (measured.counts, known.cost_ns, measured.real_ns, measured.detached_ns)
        found = scale(*runs) if given.quick else fit(*runs, measured.no_calls)
    except ValueError as fault:
        why = "\n".join(f"{name}: {reason}" for name, reason in measured.failed.items())
        raise EnvironmentUnusable(f"the host's programs cannot be timed: {fault}", details=why) from None
    # `--quick` measures two programs only: their factor says less about other programs than a fit of all of them.
    off = max(found.error, PROBES_ERROR) if given.quick else found.error
    try:
        text = host_toml(
            found.cost_ns,
            Spread(measured.fast, measured.slow, hypot(off, DRIFT)),
            provenance(measured, given.rounds, given.quick),
            like=known,
            comment=f"Measured by {command} on {date.today().isoformat()}.",
        )
        write_whole(target, text.encode())
        # The file is read back: costs measured beside other work may be such that no run accepts them.
        load_host(target)
    except OSError as error:
        raise NotWritten(f"{target}: {error.strerror}") from None
    except ProfileError as error:
        target.unlink(missing_ok=True)
        raise EnvironmentUnusable(
            f"no host takes what was measured: {error}", "measure while the machine does no other work"
        ) from None
    print(summary(measured, found, known.cost_ns))
    print(f"{target}: written after {time.monotonic() - began:.0f} s")
    print(
        f'next: phantora-async profiles copy dgx-h200 mine.toml, say host = "{target}" in it, run --cluster mine.toml'
    )
    return 0


def provenance(measured: Measurement, rounds: int, quick: bool) -> dict[str, str]:
    machine = measured.machine
    programs = sum(not name.endswith(AGAIN) for name in measured.counts)
    scaled = f"; costs of {KNOWN_HOST} times one factor" if quick else ""
    known = f"calls as on {KNOWN_HOST}: no GPU here" if not machine.gpus else "calls measured"
    if machine.gpus == 1:
        known += f", but nccl as on {KNOWN_HOST}: one GPU"
    return {
        "cpu": f"{machine.cpu}, {machine.cpus} processors",
        "kernel": machine.kernel,
        "python": machine.python,
        "torch": machine.torch,
        "gpu": f"{machine.gpus} x {machine.gpu}" if machine.gpus else "none",
        "date": date.today().isoformat(),
        "programs": f"{programs} of emu.hostbench, median of {rounds} rounds; {known}{scaled}",
    }


def summary(measured: Measurement, found: Fit, known_ns: dict[str, float]) -> str:
    """The costs of each kind here and on the known host, and how well the costs explain the programs."""
    rows = [f"{'kind':<14} {'here':>10} {KNOWN_HOST:>10}  ns"]
    rows += [f"{kind:<14} {found.cost_ns[kind]:10.4g} {known_ns[kind]:10.4g}" for kind in (*CALL_KINDS, *WORK_KINDS)]
    worst = sorted(found.errors.items(), key=lambda item: -abs(item[1]))[:3]
    rows.append(
        f"{len(found.errors)} runs of programs, each predicted from the other programs: error {found.error:.0%}; worst "
        + ", ".join(f"{name} {error:+.0%}" for name, error in worst)
    )
    if not measured.machine.gpus:
        rows.append(f"no GPU here: the costs of API calls are those of {KNOWN_HOST}")
    rows += [f"left out: {name} ({why})" for name, why in measured.failed.items()]
    return "\n".join(rows)
