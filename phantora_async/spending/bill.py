"""Computes money and energy of a step, of a million tokens, and of a whole job."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from phantora_async.spending.job import Job
from profiles import Price

Document = dict[str, Any]
HOUR_S = 3600.0
MILLION = 1e6
INCLUDES = (
    "money is GPU hours at the listed price while steps are done; energy is what the GPUs draw meanwhile. Not "
    "included: start-up, idle time, storage, traffic, taxes; CPUs, memory, switches, cooling"
)


@dataclass(frozen=True, slots=True)
class Question:
    """The question for the whole job. Without tokens and steps none is asked."""

    tokens: float | None = None
    train_steps: int | None = None
    goodput: float = 1.0
    """The share of its time that the job keeps when parts fail."""


NOTHING = Question()


def bill(job: Job, price: Price | None, asked: Question = NOTHING) -> Document:
    """The money and energy of the job. Money is [low, high] in the price's currency; unknown figures are None."""
    hours = job.step_s / HOUR_S
    tokens = job.tokens_per_step
    steps: float | None = asked.train_steps
    if asked.tokens is not None and tokens:
        steps = asked.tokens / tokens
    return {
        "gpu": job.gpu,
        "gpus": job.gpus,
        "step_s": job.step_s,
        "price": None if price is None else asdict(price),
        "step": _amount(job, price, hours, 1.0),
        "tokens_per_step": tokens,
        "tokens_from": job.tokens_from,
        "million_tokens": _amount(job, price, hours, MILLION / tokens) if tokens else None,
        "job": None if steps is None else _whole(job, price, hours, steps, asked.goodput),
        "includes": INCLUDES,
    }


def _amount(job: Job, price: Price | None, hours: float, steps: float, goodput: float = 1.0) -> Document:
    """The cost of so many steps of `hours` each. Lost time costs money, and GPUs are assumed to draw the same power in
    it as in steps.
    """
    gpu_hours = hours * steps * job.gpus / goodput
    return {
        "gpu_hours": gpu_hours,
        "money": None if price is None else [price.low * gpu_hours, price.high * gpu_hours],
        "kwh": None if job.step_j is None else job.step_j * steps / goodput / HOUR_S / 1000,
    }


def _whole(job: Job, price: Price | None, hours: float, steps: float, goodput: float) -> Document:
    tokens = None if job.tokens_per_step is None else steps * job.tokens_per_step
    times = {"steps": steps, "tokens": tokens, "goodput": goodput, "hours": hours * steps / goodput}
    return times | _amount(job, price, hours, steps, goodput)
