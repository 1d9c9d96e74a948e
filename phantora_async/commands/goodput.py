"""Compute the share of its time that a long run keeps when GPUs, nodes and networks fail, and how often to write
checkpoints.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from phantora_async.errors import UsageError
from phantora_async.spending import asked
from phantora_async.spending.text import lines

if TYPE_CHECKING:
    from phantora_async.goodput.inputs import TrainingJob

UNITS_S = {"ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
MOST_S = 1e13
MOST_RUNS = 100_000
MOST_GPUS = 10_000_000
PARTS = ("gpu", "node", "network", "software")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = (
        "phantora-async goodput [REPORT] [--gpus N] [--nodes N] [--mtbf-gpu TIME] --checkpoint-stall TIME "
        "[--checkpoint-every TIME] [--restart TIME] [--horizon TIME] [--json]"
    )
    parser.add_argument(
        "report",
        nargs="?",
        type=Path,
        metavar="REPORT",
        help="run directory or JSON report: its GPUs, its speed, and the restarts that it has simulated",
    )
    parser.add_argument("--gpus", type=int, metavar="N", help="number of GPUs in place of the report's")
    parser.add_argument("--nodes", type=int, metavar="N", help="number of nodes (default: one for 8 GPUs)")
    for part in PARTS:
        what = "one GPU" if part == "gpu" else f"one node's {part}" if part != "node" else "one node"
        parser.add_argument(
            f"--mtbf-{part}", metavar="TIME", help=f"mean time between failures of {what} (default: Llama 3's)"
        )
    parser.add_argument(
        "--checkpoint-every", metavar="TIME", help="work between two checkpoints (default: the best interval)"
    )
    parser.add_argument("--checkpoint-stall", metavar="TIME", help="how long training stands still for a checkpoint")
    parser.add_argument(
        "--checkpoint-write",
        metavar="TIME",
        help="how long it takes until a checkpoint is durable (default: --checkpoint-stall; longer if it is written in "
        "the background)",
    )
    parser.add_argument(
        "--restart",
        metavar="TIME",
        help="from a failure until training goes on: noticing it, starting, loading (default: as the report's run)",
    )
    parser.add_argument("--horizon", default="30d", metavar="TIME", help="length of the run (default: %(default)s)")
    parser.add_argument(
        "--runs", type=int, default=300, metavar="N", help="horizons to simulate (default: %(default)s)"
    )
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="of the simulation (default: %(default)s)")
    asked.add_arguments(parser, goodput=False)
    parser.add_argument("--json", action="store_true", help="print JSON in place of text")


def run(given: argparse.Namespace) -> int:
    from phantora_async.goodput.closed_form import Costs
    from phantora_async.goodput.document import Question, document
    from phantora_async.goodput.rates import rates_of
    from phantora_async.goodput.text import text

    job = _job(given)
    stall_s = _time("--checkpoint-stall", given.checkpoint_stall)
    if stall_s is None:
        raise UsageError(
            "--checkpoint-stall is missing: how long training stands still for a checkpoint",
            "14 bytes a parameter, over what the storage takes; for asynchronous checkpoints the copy to the host",
        )
    write_s = _time("--checkpoint-write", given.checkpoint_write)
    restart_s = _time("--restart", given.restart)
    # A report has the time of a restart only if its run has simulated one.
    if restart_s is None:
        restart_s = job.restart_s
    if restart_s is None:
        raise UsageError(
            "--restart is missing, and the report has no restart",
            "state it, or run with a fault and `--launcher -- torchrun --max-restarts 1`",
        )
    # Training goes on while the rest of the checkpoint is written, but it is not durable before.
    behind_s = 0.0 if write_s is None else write_s - stall_s
    interval_s = _time("--checkpoint-every", given.checkpoint_every)
    if behind_s < 0:
        raise UsageError("--checkpoint-write is shorter than --checkpoint-stall")
    if interval_s is not None and behind_s > interval_s:
        raise UsageError("--checkpoint-write: a checkpoint is not durable before the next one begins")
    if not 2 <= given.runs <= MOST_RUNS:
        raise UsageError(f"--runs {given.runs}: expected 2 to {MOST_RUNS:,}")
    mtbf = {part: _time(f"--mtbf-{part}", getattr(given, f"mtbf_{part}")) for part in PARTS}
    rates = rates_of(job.gpus, job.nodes, {part: mean_s for part, mean_s in mtbf.items() if mean_s is not None})
    horizon_s = _time("--horizon", given.horizon)
    assert horizon_s is not None, "it has a default"
    found = document(
        Question(job, rates, Costs(stall_s, behind_s, restart_s), interval_s, horizon_s, given.runs, given.seed)
    )
    spent = _spent(given, found["goodput"]) if asked.is_asked(given) else None
    if given.json:
        print(json.dumps(found if spent is None else found | {"spent": spent}, indent=1))
    else:
        print("\n".join([text(found), *([] if spent is None else ["", *lines(spent)])]))
    return 0


def _spent(given: argparse.Namespace, goodput: float) -> dict[str, Any]:
    """The money and energy of the whole job, with the time that is lost."""
    if given.tokens is None and given.train_steps is None:
        raise UsageError("--prices and --tokens-per-step are for a whole job", "say --tokens or --train-steps, too")
    if given.report is None or given.gpus is not None or given.nodes is not None:
        raise UsageError(
            "money and energy are those of a report, on as many GPUs as it has",
            "name a report, without --gpus and --nodes",
        )
    from phantora_async.api.results import load

    return asked.answered(given, load(given.report).report, goodput)


def _job(given: argparse.Namespace) -> TrainingJob:
    from phantora_async.goodput.inputs import TrainingJob, job_of
    from phantora_async.goodput.rates import GPUS_PER_NODE

    job = TrainingJob(0, 0)
    if given.report is not None:
        from phantora_async.api.results import load

        job = job_of(load(given.report).report)
    for option, value in (("--gpus", given.gpus), ("--nodes", given.nodes)):
        if value is not None and not 1 <= value <= MOST_GPUS:
            raise UsageError(f"{option} {value}: expected 1 to {MOST_GPUS:,}")
    if given.nodes is not None and given.gpus is None:
        per_node = -(-job.gpus // job.nodes) if job.nodes else GPUS_PER_NODE
        return _scaled(job, given.nodes * per_node, given.nodes)
    if given.gpus is not None:
        return _scaled(job, given.gpus, given.nodes or -(-given.gpus // GPUS_PER_NODE))
    if not job.gpus:
        raise UsageError("how many GPUs? Name a report, or --gpus N")
    return job


def _scaled(job: TrainingJob, gpus: int, nodes: int) -> TrainingJob:
    """The job on another number of GPUs: tokens grow with the GPUs; step time and MFU are assumed to stay."""
    tokens = None if job.tokens_per_s is None else job.tokens_per_s * gpus / job.gpus
    return dataclasses.replace(job, gpus=gpus, nodes=nodes, tokens_per_s=tokens)


def _time(option: str, text: str | None) -> float | None:
    """Converts the option's text into seconds. Raises UsageError."""
    if text is None:
        return None
    found = re.fullmatch(r"([0-9]{1,12}(?:\.[0-9]{1,9})?)(ms|s|m|h|d)", text)
    time_s = float(found[1]) * UNITS_S[found[2]] if found else 0.0
    if not 0 < time_s <= MOST_S:
        raise UsageError(f"{option} {text}: expected a time greater than 0, such as 30s, 5m, 50000h or 30d")
    return time_s
