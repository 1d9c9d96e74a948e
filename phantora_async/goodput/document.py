"""All figures of `phantora-async goodput`, as JSON has them."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from phantora_async.goodput.closed_form import Costs, best_interval, daly, shares, young
from phantora_async.goodput.inputs import TrainingJob
from phantora_async.goodput.rates import Rates
from phantora_async.goodput.simulation import MOST_TURNS, simulate, turns

SCHEMA = 1
Document = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Question:
    job: TrainingJob
    rates: Rates
    costs: Costs
    interval_s: float | None
    """The interval between checkpoints; None: the best one."""
    horizon_s: float
    runs: int
    seed: int


def document(asked: Question) -> Document:
    """The answer as JSON. Times are in seconds, shares between 0 and 1."""
    rates, costs, job = asked.rates, asked.costs, asked.job
    mean_s = rates.mean_s
    best_s = best_interval(costs, mean_s)
    interval_s = best_s if asked.interval_s is None else asked.interval_s
    found, best = shares(interval_s, costs, mean_s), shares(best_s, costs, mean_s)
    # Closed form and simulation check each other: the text says so if they disagree.
    following = turns(interval_s, costs, rates, asked.horizon_s, asked.runs)
    simulated: Document = {"runs": asked.runs, "seed": asked.seed, "left_out": following > MOST_TURNS}
    if not simulated["left_out"]:
        drawn = simulate(interval_s, costs, rates, asked.horizon_s, asked.runs, asked.seed)
        simulated |= asdict(drawn) | {"agrees": drawn.agrees(found.useful)}
    # Time that is neither useful nor spent on checkpoints is lost to failures, in proportion to the rate of each cause.
    lost = 1 - found.useful - found.checkpoints
    causes = {
        cause: {
            "failures": rate * asked.horizon_s,
            "lost_share": lost * rate / rates.total,
            "lost_s": lost * rate / rates.total * asked.horizon_s,
        }
        for cause, rate in rates.per_s.items()
    }
    return {
        "schema": SCHEMA,
        "gpus": job.gpus,
        "nodes": job.nodes,
        "horizon_s": asked.horizon_s,
        "rates": {"source": rates.source, "mean_s": mean_s, "per_s": dict(rates.per_s)},
        "costs": asdict(costs),
        "interval_s": interval_s,
        "goodput": found.useful,
        "lost": {"checkpoints": found.checkpoints, "lost_work": found.lost_work, "restarts": found.restarts},
        "causes": causes,
        "simulated": simulated,
        "best": {
            "interval_s": best_s,
            "goodput": best.useful,
            "young_s": young(costs, mean_s),
            "daly_s": daly(costs, mean_s),
        },
        "step_s": job.step_s,
        "tokens_per_s": _times(job.tokens_per_s, found.useful),
        "mfu": _times(job.mfu, found.useful),
    }


def _times(value: float | None, share: float) -> float | None:
    return None if value is None else value * share
