"""The figures of a report: one table of each kind, which every reader of a figure uses.

Comes in: ``simulated`` of a JSON report.
Goes out: names, titles, units, windows, colours and values of figures, for the terminal, Markdown, CSV, comparisons,
budgets, the page, pictures and the API. A new figure or a new account of time is a row of a table here.
May import: how texts write numbers.
"""

from phantora_async.figures.counted import counted_in, ranks_of, steps_that_count
from phantora_async.figures.resources import IN_SENTENCES, Resource
from phantora_async.figures.run_figures import (
    ALLOCATED,
    HOST_WORK,
    INTERVAL_HIGH,
    INTERVAL_LOW,
    MFU,
    RESERVED,
    RUN_FIGURES,
    STEP_TIME,
    TFLOPS,
    TOKENS,
    WHOLE_RUN,
    RunFigure,
    Unit,
    has_steps,
    logged_rate,
)
from phantora_async.figures.time_accounts import TIME_ACCOUNTS, Doing, Shares, TimeAccount
from phantora_async.figures.tokens import Tokens, times_the_tokens, tokens_of_step

__all__ = [
    "ALLOCATED",
    "HOST_WORK",
    "INTERVAL_HIGH",
    "INTERVAL_LOW",
    "IN_SENTENCES",
    "MFU",
    "RESERVED",
    "RUN_FIGURES",
    "STEP_TIME",
    "TFLOPS",
    "TIME_ACCOUNTS",
    "TOKENS",
    "WHOLE_RUN",
    "Doing",
    "Resource",
    "RunFigure",
    "Shares",
    "TimeAccount",
    "Tokens",
    "Unit",
    "counted_in",
    "has_steps",
    "logged_rate",
    "ranks_of",
    "steps_that_count",
    "times_the_tokens",
    "tokens_of_step",
]
