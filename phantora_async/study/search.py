"""Searches with a sampler: trials are asked for, run, and told to it, until there are as many as wanted."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from phantora_async.errors import UsageError
from phantora_async.study.execution import Sweep
from phantora_async.study.outcome.front import Entry
from phantora_async.study.sampler import Asked, Sampler, Told
from phantora_async.study.trials.goal import ENERGY, JOB, MILLION_TOKENS, MONEY, STEP, Goal
from phantora_async.study.trials.results import FAILED as STATE_FAILED
from phantora_async.study.trials.results import PRUNED, Result
from phantora_async.study.trials.study_file import Searching
from phantora_async.study.trials.trial import Trial
from profiles import Price

UNWANTED, FAILED, TOO_LARGE = 30.0, 20.0, 10.0
"""The excess of trials for which `only` does not hold, that failed, that do not fit: worse than limits that are
broken.
"""
ASKED_IN_VAIN = 50
"""The questions to the sampler without a new trial, for each trial that is wanted, after which a search ends."""


@dataclass
class Found:
    """The trials in the order in which they were chosen."""

    trials: dict[str, Trial] = field(default_factory=dict)


def searched(
    searching: Searching, goal: Goal, prices: Mapping[str, Price], sweep: Sweep, found: Found
) -> Iterator[Result]:
    """Yields the results that the store did not have, each when it is known. Trials are added to `found`."""
    search, wanted = searching.search, len(found.trials) + searching.wanted
    sampler, of, in_vain = Sampler(search, len(goal.objectives)), None, 0
    while len(found.trials) < wanted and in_vain < ASKED_IN_VAIN * searching.wanted:
        asked: list[tuple[Asked, Trial | None]] = []
        new: dict[str, Trial] = {}
        for _ in range(search.at_a_time):
            one = sampler.ask()
            trial = searching.make(one.chosen)
            asked.append((one, trial))
            if trial is not None and trial.key not in found.trials and len(found.trials) + len(new) < wanted:
                new.setdefault(trial.key, trial)
        in_vain = 0 if new else in_vain + len(asked)
        found.trials.update(new)
        yield from sweep.results(list(new.values()))
        for one, trial in asked:
            entry = None if trial is None else _entry(trial, sweep, goal, prices)
            if of is None and entry is not None and entry.bill is not None:
                of = next(name for name in (JOB, MILLION_TOKENS, STEP) if entry.bill[name] is not None)
            sampler.tell(one, _told(entry, goal, of or STEP, sweep))


def check_known(searching: Searching, goal: Goal, prices: Mapping[str, Price]) -> None:
    """A sampler cannot compare what is known of some trials only. Raises UsageError."""
    gpus = {one.gpu.name: one.gpu for one in searching.corners}
    for objective, known, what in (
        (MONEY, [name in prices for name in gpus], "a price"),
        (ENERGY, [gpu.power is not None for gpu in gpus.values()], "a description of its power"),
    ):
        if objective in goal.objectives and any(known) and not all(known):
            without = next(name for name, good in zip(gpus, known, strict=True) if not good)
            raise UsageError(
                f"objectives: {objective} is not known of {without}, which has not {what}",
                f"leave out {objective} or {without}, or name a table of prices with --prices",
            )


def _entry(trial: Trial, sweep: Sweep, goal: Goal, prices: Mapping[str, Price]) -> Entry | None:
    result = sweep.store.results.get(trial.key)
    return None if result is None else Entry(trial, result, goal, prices.get(trial.gpu.name))


def _told(entry: Entry | None, goal: Goal, of: str, sweep: Sweep) -> Told:
    """An objective that is not known of any trial does not decide: it is 0 in all."""
    if entry is None:
        return Told((), UNWANTED)
    if entry.result.state == PRUNED and "step" in entry.result.figures:
        return Told([sweep.pruning.loss(entry.trial, entry.result.figures["step"])], pruned=True)
    if not entry.result.good:
        return Told((), FAILED if entry.result.state == STATE_FAILED else TOO_LARGE)
    if entry.excesses:
        return Told((), min(TOO_LARGE, sum(share for _, share in entry.excesses)))
    return Told([entry.loss(name, of) or 0.0 for name in goal.objectives])
