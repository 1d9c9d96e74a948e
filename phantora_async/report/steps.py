"""Finds how long a training step takes: from markers, else from the period of rank 0's collectives, else the whole run.

Steps have one numbering, in text, page, JSON, traces and options: step 1 begins with the run and ends at the first
marker. It is not timed, because it includes the work before training. Periods of collectives are counted from 1, too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from statistics import median
from typing import Any

from phantora_async.figures import WHOLE_RUN, has_steps
from phantora_async.virtual_time import Snapshot
from phantora_async.virtual_time.results import WARM_UP, CompletedCollective

ONE_STEP = "one step was found, and two are needed, as the first is not timed"
MOST_IN_TURN = 8
"""The longest cycle of different steps that is looked for."""
_ALIKE, _UNLIKE = 0.05, 0.2
"""Steps at one place of a cycle differ by less than the first share of their median, and the places by more than the
second share of their mean.
"""
LISTED = 1000
"""The most steps that the document lists one by one; of longer runs the last ones."""


def step_document(snapshot: Snapshot) -> dict[str, Any]:
    """``source`` says how steps were found. ``each_ns`` are those timed, or the last of them; the first one is number
    ``first_listed`` and begins at ``from_ns``. The figures are of steps ``first_counted`` to ``last_counted``: the
    first ``warm_up`` that were timed are left out. ``turn_ns``: the times of a repeating cycle of steps, if there is
    one.
    """
    instants = snapshot.step_instants
    if len(instants) > 1:
        device = _intervals([step.device_ns for step in instants])
        host = _intervals([step.host_ns for step in instants])
        from_ns = instants[-1 - len(device[-LISTED:])].device_ns
        return _figures("optimizer markers on rank 0", device, host, first=2) | {"from_ns": from_ns}
    repeats = _repeats(snapshot.completed_collectives)
    if len(repeats) > 1:
        each = _intervals(repeats)
        from_ns = repeats[-1 - len(each[-LISTED:])]
        return _figures("period of rank 0's collectives", each, []) | {"from_ns": from_ns}
    why = ONE_STEP if instants else "neither optimizer steps nor a repeating sequence of collectives was found"
    return _figures(f"{WHOLE_RUN}: {why}", [snapshot.now_ns], []) | {"from_ns": 0}


def _repeats(completed: Sequence[CompletedCollective]) -> list[int]:
    """Instants one period apart over the repeating end of the sequence; empty if there is no repetition.

    The period is the smallest number of collectives with which the last three quarters of the sequence repeat
    themselves at least three times. Its phase is arbitrary, its length is not.
    """
    tail = completed[len(completed) // 4 :]
    length = period([collective.signature for collective in tail])
    if not length or len(tail) < 3 * length:
        return []
    return [collective.at_ns for collective in tail[(len(tail) - 1) % length :: length]]


def period(numbers: Sequence[int]) -> int:
    """The smallest p with numbers[i] == numbers[i + p] throughout, by Knuth, Morris and Pratt's borders; 0 if empty."""
    borders = [0] * len(numbers)
    for place in range(1, len(numbers)):
        border = borders[place - 1]
        while border and numbers[place] != numbers[border]:
            border = borders[border - 1]
        borders[place] = border + (numbers[place] == numbers[border])
    return len(numbers) - borders[-1] if numbers else 0


def _intervals(instants: list[int]) -> list[int]:
    return [after - before for before, after in pairwise(instants)]


def _figures(source: str, device: list[int], host: list[int], first: int = 1) -> dict[str, Any]:
    """The figures of the steps. `first`: the number of the first step that was timed."""
    warm_up = min(WARM_UP, len(device) - 1)
    counted = device[warm_up:]
    return {
        "source": source,
        "warm_up": warm_up,
        "counted": len(counted),
        "first_listed": first + len(device) - len(device[-LISTED:]),
        "first_counted": first + warm_up,
        "last_counted": first + len(device) - 1,
        "median_ns": round(median(counted)),
        "mean_ns": round(sum(counted) / len(counted)),
        "min_ns": min(counted),
        "max_ns": max(counted),
        "host_median_ns": round(median(host[warm_up:])) if host else None,
        "each_ns": device[-LISTED:],
        "turn_ns": _turn(counted),
    }


def _turn(each_ns: Sequence[int]) -> list[int]:
    """The median times in a repeating cycle of different steps, as with an optimizer for each of two networks; else
    empty.
    """
    for length in range(2, min(MOST_IN_TURN, len(each_ns) // 3) + 1):
        places = [each_ns[place::length] for place in range(length)]
        medians = [round(median(place)) for place in places]
        alike = all(max(place) - min(place) <= _ALIKE * usual for place, usual in zip(places, medians, strict=True))
        if alike and max(medians) - min(medians) > _UNLIKE * sum(medians) / length:
            return medians
    return []


def counted_steps(step: Mapping[str, Any]) -> str:
    """The window of the figures, in words: `steps 4 to 5`."""
    if not has_steps(step):
        return WHOLE_RUN
    if "first_counted" not in step or "last_counted" not in step:
        return "the steps that count"  # a report of an older version, or a damaged one
    return steps_named(step["first_counted"], step["last_counted"])


def has_step_time(report: Mapping[str, Any]) -> bool:
    """Returns false for a run that failed before it had whole steps: the time until then is no step's time."""
    return not (report.get("exit_code") and not has_steps(report["simulated"]["step"]))


def why_untimed(step: Mapping[str, Any]) -> str:
    """Says what was found instead of steps, for a run whose source is the whole run."""
    return ONE_STEP if step["source"].endswith(ONE_STEP) else "no steps were found"


def steps_named(first: int, last: int) -> str:
    return f"step {first}" if first == last else f"steps {first} to {last}"


def window(simulated: Mapping[str, Any], kind: str) -> str:
    """A window of the document in words. `kind`: `steps` or `run`."""
    return counted_steps(simulated["step"]) if kind == "steps" else WHOLE_RUN
