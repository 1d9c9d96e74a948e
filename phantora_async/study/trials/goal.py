"""The goals of a study: the job as a whole, its limits, and the objectives by which trials are compared."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from formats.nearest import meant_or_known
from formats.toml import FileTable
from formats.values import shown
from phantora_async.budget import Limits
from phantora_async.errors import UsageError
from phantora_async.spending.asked import count_of, share_of
from phantora_async.spending.bill import NOTHING, Document, Question
from phantora_async.spending.text import duration_text, number

TIME, RATE, MFU, MEMORY, MONEY, ENERGY = "time", "tokens/s", "mfu", "memory", "money", "energy"
OBJECTIVES = (TIME, RATE, MFU, MEMORY, MONEY, ENERGY)
MORE_IS_BETTER = (RATE, MFU)
USUAL = (TIME, MEMORY, MONEY)
OF_STEP = (TIME, RATE, MONEY)
"""The objectives that follow from the time of a step, if the number of tokens of a step is known."""
STEP, MILLION_TOKENS, JOB = "step", "million_tokens", "job"
"""The amounts of work for which time, money and energy are counted, as ``bill`` names them."""
HOURS = {"h": 1.0, "d": 24.0}


@dataclass(frozen=True, slots=True)
class Goal:
    limits: Limits = field(default_factory=lambda: Limits({}))
    objectives: tuple[str, ...] = USUAL
    question: Question = NOTHING
    deadline_h: float | None = None
    """The hours that the whole job may take."""
    max_money: float | None = None
    """The money that the whole job may cost, at the high price."""
    prune: bool = False
    """True if runs end that can be no better than the best one: see ``study.pruning``."""
    more_memory: tuple[str, ...] = ()
    """The settings of trials for which a larger value needs more memory, all else equal."""

    def excesses(self, figures: Mapping[str, float], spent: Document | None) -> Iterator[tuple[str, float]]:
        """Yields each broken limit in words, with the share by which it is exceeded. `spent`: the document of
        ``bill``.
        """
        for row in self.limits.rows_of(figures):
            if row.broken:
                yield row.text, 1.0 if row.value is None else abs(row.value / row.limit - 1)
        job = None if spent is None else spent["job"]
        if self.deadline_h is not None:
            hours = job and job["hours"]
            if hours is None:
                yield "time of the whole job not known", 1.0
            elif hours > self.deadline_h:
                yield f"{duration_text(hours)} of {duration_text(self.deadline_h)}", hours / self.deadline_h - 1
        if self.max_money is not None:
            money = job and job["money"] and job["money"][1]
            if money is None:
                yield "money of the whole job not known", 1.0
            elif money > self.max_money:
                assert spent is not None, "a job with money has a bill"
                sign = spent["price"]["currency"]
                yield f"{sign}{number(money)} of {sign}{number(self.max_money)}", money / self.max_money - 1


def read_goal(top: FileTable, limits: Limits) -> Goal:
    """Reads the goals from the study's file. Raises UsageError."""
    objectives = tuple(top.texts("objectives", list(USUAL)))
    if not objectives:
        raise top.error("objectives", f"is empty: nothing would be compared; known: {', '.join(OBJECTIVES)}")
    for one in objectives:
        if one not in OBJECTIVES:
            raise top.error("objectives", f"unknown objective {shown(one)}; {meant_or_known(one, OBJECTIVES)}")
    tokens = _read(top, "tokens", count_of) if "tokens" in top else None
    goodput = _read(top, "goodput", share_of) if "goodput" in top else 1.0
    deadline_h = _hours(top) if "deadline" in top else None
    max_money = top.number("max_money") if "max_money" in top else None
    for key, value in (("goodput", goodput != 1.0), ("deadline", deadline_h), ("max_money", max_money)):
        if value and tokens is None:
            raise top.error(key, 'is of a whole job: say with `tokens = "15T"` how long it is')
    prune = top.flag("prune") if "prune" in top else False
    if prune and not (len(objectives) == 1 and objectives[0] in OF_STEP and "tokens_per_step" in top):
        known = ", ".join(OF_STEP)
        raise top.error("prune", f"needs tokens_per_step and a single one of these objectives: {known}")
    if prune and (deadline_h is not None or max_money is not None):
        raise top.error("prune", "does not go with limits of the whole job: deadline, max_money")
    more_memory = tuple(top.texts("more_memory", []))
    return Goal(limits, objectives, Question(tokens, None, goodput), deadline_h, max_money, prune, more_memory)


def _read(top: FileTable, key: str, read: Callable[[str, str], float]) -> float:
    try:
        return read(key, str(top.value(key)))
    except UsageError as error:
        raise top.error(key, error.message.partition(": ")[2]) from None


def _hours(top: FileTable) -> float:
    text = top.text("deadline")
    found = re.fullmatch(r"([0-9]{1,9}(?:\.[0-9]{1,9})?)\s*([hd])", text)
    if found is None or not float(found[1]) > 0:
        raise top.error("deadline", f"expected a time such as 30d or 12h, found {text!r}")
    return float(found[1]) * HOURS[found[2]]
