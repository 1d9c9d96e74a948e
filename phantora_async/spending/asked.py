"""The options of commands for money and energy, and the answer to them."""

from __future__ import annotations

import argparse
import re
from collections.abc import Mapping
from typing import Any

from phantora_async.errors import UsageError
from phantora_async.spending.bill import NOTHING, Document, Question, bill
from phantora_async.spending.job import job_of
from profiles import LISTED, Price, ProfileError, load_prices

SCALES = {"": 1.0, "K": 1e3, "M": 1e6, "B": 1e9, "T": 1e12}
MOST_STEPS = 10**12


def add_arguments(parser: argparse.ArgumentParser, *, goodput: bool = True) -> None:
    """Adds the options. `goodput`: add its option, too; else the command itself computes it."""
    parser.add_argument(
        "--prices",
        metavar="NAME|FILE",
        help="what an hour of a GPU costs (default: listed, of public pages; phantora-async profiles show listed)",
    )
    parser.add_argument(
        "--tokens", metavar="N", help="money and energy of a job that trains on so many tokens: 15T, 300B"
    )
    parser.add_argument("--train-steps", type=int, metavar="N", help="of a job of so many steps")
    parser.add_argument(
        "--tokens-per-step",
        metavar="N",
        help="of all GPUs together (default: counted by the sizes of loss and embedding, else as logged)",
    )
    if not goodput:
        return
    parser.add_argument(
        "--goodput",
        metavar="SHARE",
        help="share of its time that the job keeps when parts fail, 0.93 or 93%%: see `phantora-async goodput`",
    )


def is_asked(given: argparse.Namespace) -> bool:
    names = ("prices", "tokens", "train_steps", "tokens_per_step", "goodput")
    return any(getattr(given, name, None) is not None for name in names)


def answered(given: argparse.Namespace, report: Mapping[str, Any], goodput: float | None = None) -> Document:
    """The answer to these options. `goodput`: in place of the option. Raises UsageError."""
    if goodput is None:
        goodput = 1.0 if given.goodput is None else share_of("--goodput", given.goodput)
    asked = Question(
        None if given.tokens is None else count_of("--tokens", given.tokens),
        given.train_steps,
        goodput,
    )
    if asked.tokens is not None and asked.train_steps is not None:
        raise UsageError("--tokens and --train-steps exclude each other", "leave out one of the two")
    if asked.train_steps is not None and not 1 <= asked.train_steps <= MOST_STEPS:
        raise UsageError(f"--train-steps {asked.train_steps}: expected 1 to {MOST_STEPS:,}")
    if asked.goodput != 1.0 and asked.tokens is None and asked.train_steps is None:
        raise UsageError("--goodput is of a whole job", "name it with --tokens or --train-steps")
    per_step = None if given.tokens_per_step is None else count_of("--tokens-per-step", given.tokens_per_step)
    job = job_of(report, per_step)
    if job is None:
        raise UsageError("the report has no steps: money and energy are counted by steps")
    if asked.tokens is not None and job.tokens_per_step is None:
        raise UsageError(
            "--tokens: it is not known how many a step has: neither sizes nor a log of tokens/s tell it",
            "--tokens-per-step N, of all GPUs together",
        )
    return bill(job, prices_of(given.prices).get(job.gpu), asked)


def of_step(report: Mapping[str, Any]) -> Document | None:
    """The money and energy of a step with the shipped prices; None if the report has no steps."""
    job = job_of(report)
    return None if job is None else bill(job, load_prices().get(job.gpu), NOTHING)


def prices_of(name: str | None) -> Mapping[str, Price]:
    """The prices of this file or name. Raises UsageError."""
    try:
        return load_prices(name or LISTED)
    except ProfileError as error:
        raise UsageError(str(error), "phantora-async profiles copy listed mine.toml makes one to edit") from None


def count_of(option: str, text: str) -> float:
    """The number in ``15T``, ``4.19M`` or ``4194304``. Raises UsageError."""
    found = re.fullmatch(r"([0-9]{1,18}(?:\.[0-9]{1,9})?)([KMBT]?)", text)
    value = float(found[1]) * SCALES[found[2]] if found else 0.0
    if not 0 < value <= 1e24:
        raise UsageError(f"{option} {text}: expected a number above 0, such as 15T, 300B, 4M or 4194304")
    return value


def share_of(option: str, text: str) -> float:
    found = re.fullmatch(r"([0-9]{1,3}(?:\.[0-9]{1,9})?)(%?)", text)
    value = float(found[1]) / (100 if found[2] else 1) if found else 0.0
    if not 0 < value <= 1:
        raise UsageError(f"{option} {text}: expected a share above 0 and at most 1, such as 0.93 or 93%")
    return value
