"""`--loaders`: does loading data take virtual time, and how much? And loaders that a fault makes slow."""

from __future__ import annotations

import re
from dataclasses import dataclass

WORDS = FREE, MODELLED = "free", "modelled"
_UNITS_NS = {"us": 10**3, "ms": 10**6, "s": 10**9}
_MOST_NS = 3600 * 10**9


@dataclass(frozen=True, slots=True)
class LoadingPolicy:
    text: str
    takes_time: bool
    stated_ns: int = 0
    """CPU time of a batch on the described server, in ns; 0: the time that it takes on this machine counts."""


@dataclass(frozen=True, slots=True)
class SlowLoader:
    """A fault of a rank's data loader: of every `every` batches, the last one comes `more_ns` later."""

    rank: int
    more_ns: int
    every: int


def parse(text: str) -> LoadingPolicy:
    """Reads the option's text. Raises ValueError if it is neither `free`, `modelled` nor a time greater than 0 such as
    12ms.
    """
    if text in (FREE, MODELLED):
        return LoadingPolicy(text, text == MODELLED)
    found = re.fullmatch(r"([0-9]{1,12}(?:\.[0-9]{1,9})?)(us|ms|s)", text)
    stated_ns = round(float(found[1]) * _UNITS_NS[found[2]]) if found else 0
    if not 0 < stated_ns <= _MOST_NS:
        raise ValueError(
            f"--loaders {text}: expected free, modelled, or the CPU time of a batch of at most an hour, such as 12ms"
        )
    return LoadingPolicy(text, True, stated_ns)
