"""`profile SCRIPT` measures what this machine's GPU takes for the kernels of a training script.

One rank of the script runs on the GPU, as torchrun would start it, with stand-ins for the other ranks: collectives have
their real shapes, and move this rank's own values. Some steps are traced; the times of their kernels are the table.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import shlex
import shutil
import signal
import sys
from dataclasses import replace
from datetime import date
from pathlib import Path
from statistics import mean
from typing import TYPE_CHECKING, Any

from formats.files import in_place_of
from phantora_async.config import checked_module, checked_script, find_python
from phantora_async.errors import EnvironmentUnusable, NotWritten, UsageError
from phantora_async.wording import short
from profiles import Gpu, ProfileError, Table, load_gpu, save_table

if TYPE_CHECKING:
    from phantora_async.gpu_profile.rank_on_gpu import ProfiledJob, Traced
    from phantora_async.gpu_profile.trace_times import Times

STEPS = 3
PER_SERVER = 8
MOST_STEPS = 1000
SAME_LIMIT = 0.02


def add_arguments(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "-n", "--world-size", type=int, default=1, metavar="WORLD", help="ranks of the job (default: %(default)s)"
    )
    group.add_argument(
        "--rank", type=int, default=0, metavar="R", help="the rank that runs here (default: %(default)s)"
    )
    group.add_argument(
        "--nproc-per-node",
        type=int,
        metavar="GPUS",
        help=f"ranks per server that the script sees (default: the job's, {PER_SERVER} at most)",
    )
    group.add_argument("-m", "--module", action="store_true", help="SCRIPT is the name of a module, as with python -m")
    group.add_argument(
        "--steps",
        type=int,
        default=STEPS,
        metavar="N",
        help="steps to trace, after the first three (default: %(default)s)",
    )
    group.add_argument("--whole", action="store_true", help="let the script go on to its end after the traced steps")
    group.add_argument(
        "--gpu", metavar="NAME|FILE", help="description of this machine's GPU (default: the one with its name)"
    )
    group.add_argument("--trace", type=Path, metavar="FILE", help="keep the profiler's trace (.json or .json.gz)")
    group.add_argument("--json", action="store_true", help="print what was measured as JSON")


def run(given: argparse.Namespace) -> int:
    from phantora_async import local_gpus
    from phantora_async.gpu_profile.rank_on_gpu import ProfiledJob
    from phantora_async.gpu_profile.saving import check_output
    from phantora_async.gpu_profile.signatures import described

    if not 1 <= given.steps <= MOST_STEPS:
        raise UsageError(f"--steps {given.steps}: expected 1 to {MOST_STEPS:,}")
    if not 0 <= given.rank < given.world_size:
        raise UsageError(f"--rank {given.rank} of -n {given.world_size}: ranks are 0 to {given.world_size - 1}")
    per_server = given.nproc_per_node if given.nproc_per_node is not None else min(given.world_size, PER_SERVER)
    if per_server < 1:
        raise UsageError(f"--nproc-per-node {per_server}: must be at least 1")
    script = checked_module(given.script) if given.module else checked_script(given.script)
    target = Path(given.output or f"{Path(script).stem}.times.gz")
    check_output(target)
    if given.trace and (given.trace.is_dir() or not os.access(given.trace.absolute().parent, os.W_OK)):
        raise UsageError(f"{given.trace}: this file cannot be written")
    try:
        named = load_gpu(given.gpu) if given.gpu else None
    except ProfileError as error:
        raise UsageError(str(error), "known names: phantora-async profiles list") from None
    python = find_python(given.python)
    gpus = local_gpus.names(python)
    if not gpus:
        raise EnvironmentUnusable(
            "no GPU: PyTorch sees none on this machine",
            "run this on a machine with an NVIDIA GPU; `phantora-async run` needs none and estimates kernel times",
        )
    gpu = named or described(gpus[0])
    if gpu is None:
        raise UsageError(
            f"there is no description of a {gpus[0]}",
            "name the most similar one: --gpu NAME (phantora-async profiles list), or a copy that you have edited",
        )
    # SIGTERM is taken as Ctrl-C is, so that the script's process ends and gives the GPU back.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    job = ProfiledJob(
        script, given.module, tuple(given.arguments), given.rank, given.world_size, per_server, given.steps, given.whole
    )
    times, traced = _measured(python, job, gpu, given.trace)
    if not times.measured:
        raise UsageError("the script did no work on the GPU: there is nothing to write")
    table = Table()
    table.add(_origin(given, gpu, traced, times), times.measured)
    figures = _figures(given, gpu, traced, times)
    try:
        save_table(target, table)
    except OSError as error:
        raise NotWritten(f"{error.filename or target}: {error.strerror}") from None
    if given.json:
        print(json.dumps(figures | {"table": str(target)}, indent=1))
        return 0
    print(_text(figures, traced))
    if remark := _limit_remark(gpu, traced.about):
        print(remark)
    print(f"table: {short(target)}")
    print(f"use:   phantora-async run --kernel-times {short(target)} ...")
    return 0


def _measured(python: Path, job: ProfiledJob, gpu: Gpu, kept: Path | None) -> tuple[Times, Traced]:
    """A script that steps no optimizer is run again and traced as a whole. `kept`: where the trace is to stay."""
    from phantora_async.gpu_profile.rank_on_gpu import traced
    from phantora_async.gpu_profile.trace_times import times_in

    for everything in (False, True):
        with traced(python, replace(job, everything=everything)) as found:
            if found.trace is None or (not found.steps and not everything):
                print("no step was traced: the script runs again and is traced as a whole", file=sys.stderr, flush=True)
                continue
            if kept is not None:
                _keep(found.trace, kept)
            return times_in(gpu, found.trace, found.about.get("sm_mhz", ()), found.about.get("full_mhz", 0)), found
    raise UsageError("the script left no trace")


def _keep(trace: Path, kept: Path) -> None:
    opener = gzip.open if kept.suffix == ".gz" else open
    try:
        with trace.open("rb") as source, in_place_of(kept) as partial, opener(partial, "wb") as target:
            shutil.copyfileobj(source, target)
    except OSError as error:
        raise NotWritten(f"{kept}: {error.strerror}") from None


def _origin(given: argparse.Namespace, gpu: Gpu, traced: Traced, times: Times) -> dict[str, str]:
    about = traced.about
    known = {
        "gpu": about.get("gpu", gpu.device_name),
        **{name: about.get(name, "") for name in ("driver", "torch", "cuda", "cudnn", "nccl", "python")},
        "date": date.today().isoformat(),
        "command": shlex.join(["phantora-async", "profile", *_said(given)]),
        "rank": f"{given.rank} of {given.world_size}",
        "steps": _steps(traced),
        "clock": _clock(about, times),
        "power_limit_w": f"{about['power_limit_w']:g}" if about.get("power_limit_w") else "",
        "power_w": f"{mean(about['power_w']):.0f}" if about.get("power_w") else "",
    }
    return {name: str(value) for name, value in known.items() if value}


def _said(given: argparse.Namespace) -> list[str]:
    said = ["-n", str(given.world_size), "--rank", str(given.rank)]
    return [*said, *(["-m"] if given.module else []), given.script, *given.arguments]


def _steps(traced: Traced) -> str:
    if not traced.steps:
        return "the whole script"
    last = traced.first_step + traced.steps - 1
    return f"{traced.first_step} to {last}" if traced.steps > 1 else str(last)


def _clock(about: dict[str, Any], times: Times) -> str:
    modelled = f"modelled at {times.modelled_clock:.1%} of the full clock"
    if times.sampled_clock is None:
        return f"{modelled}; the GPU told none"
    return f"{modelled}; {mean(about['sm_mhz']):.0f} of {about['full_mhz']} MHz sampled"


def _limit_remark(gpu: Gpu, about: dict[str, Any]) -> str:
    """Times are freed of the clock that the description's power limit leaves."""
    limit_w = about.get("power_limit_w") or gpu.power_limit_w
    if abs(limit_w / gpu.power_limit_w - 1) < SAME_LIMIT:
        return ""
    return (
        f"this GPU's power limit is {limit_w:g} W, {gpu.name}'s description says {gpu.power_limit_w:g} W: "
        f"correct a copy of it (phantora-async profiles copy {gpu.name}) and name that with --gpu"
    )


def _figures(given: argparse.Namespace, gpu: Gpu, traced: Traced, times: Times) -> dict[str, Any]:
    return {
        "gpu": traced.about.get("gpu", gpu.device_name),
        "rank": given.rank,
        "world_size": given.world_size,
        "first_step": traced.first_step,
        "steps": traced.steps,
        "kernels": times.kernels,
        "signatures": len(times.measured),
        "gpu_ms_per_step": times.gpu_us / 1e3 / max(traced.steps, 1),
        "repeated_share": times.repeated,
        "not_covered_share": times.not_covered,
        "clock_share_modelled": times.modelled_clock,
        "clock_share_sampled": times.sampled_clock,
        "clock": _clock(traced.about, times),
        "power_w": mean(traced.about["power_w"]) if traced.about.get("power_w") else None,
        "power_limit_w": traced.about.get("power_limit_w"),
    }


def _text(figures: dict[str, Any], traced: Traced) -> str:
    per_step = " per step" if figures["steps"] else ""
    lines = [
        f"rank {figures['rank']} of {figures['world_size']} on {figures['gpu']}; traced: "
        + (
            f"step {_steps(traced)}"
            if figures["steps"] == 1
            else f"steps {_steps(traced)}"
            if figures["steps"]
            else _steps(traced)
        ),
        f"{figures['kernels']:,} kernels, copies and library calls of {figures['signatures']:,} signatures; GPU time "
        f"{figures['gpu_ms_per_step']:.2f} ms{per_step}",
        f"{figures['repeated_share']:.1%} of the GPU time is within 5 % of the time written for its signature",
        f"clock: {figures['clock']}",
    ]
    if figures["not_covered_share"] > 0.001:
        share = f"{figures['not_covered_share']:.1%}"
        lines.append(f"{share} of the GPU time ran beside other work and is not in the table")
    return "\n".join(lines)
