"""Resolves when a run ends before its script does: after steps, at an instant, or after a wait that is too long."""

from __future__ import annotations

import re

from phantora_async.errors import UsageError
from phantora_async.wording import UNITS_NS

MOST_STEPS = 1_000_000_000
LEAST_REAL_STEPS = 3
"""The first one differs: memory, caches and communicators are made in it."""
MOST_UNTIL_NS = 1 << 61
"""The latest instant of `--until` in ns, some 70 years."""


def steps_of(given: int | None, real: int | None) -> tuple[int, int]:
    """The steps that the script does, and the steps in all, with those that are played; 0: no limit, and none are
    played.
    """
    if given is not None and not 1 <= given <= MOST_STEPS:
        raise UsageError(f"--steps {given}: expected 1 to {MOST_STEPS:,}")
    if real is None:
        return given or 0, 0
    if given is None:
        raise UsageError("--real-steps needs --steps", "--steps 100 --real-steps 6: 94 are played from the record")
    if real < LEAST_REAL_STEPS:
        raise UsageError(f"--real-steps {real}: at least {LEAST_REAL_STEPS} show whether steps are the same")
    return (given, 0) if real >= given else (real, given)


def until_ns_of(text: str | None) -> int:
    if text is None:
        return 0
    found = re.fullmatch(r"([0-9]{1,12}(?:\.[0-9]{1,9})?)(ms|us|s|m|h)", text)
    for_ns = round(float(found[1]) * UNITS_NS[found[2]]) if found else 0
    if not 0 < for_ns <= MOST_UNTIL_NS:
        raise UsageError(f"--until {text}: expected a time greater than 0, such as 500ms, 10s, 2m or 1h")
    return for_ns


def check_waits(stall_timeout_s: float | None, loop_turns: int) -> None:
    if stall_timeout_s is not None and not stall_timeout_s >= 0:
        raise UsageError(f"--stall-timeout {stall_timeout_s:g}: expected seconds, or 0 for no limit")
    if not 0 <= loop_turns < 2**62:
        raise UsageError(f"--loop-turns {loop_turns}: expected a number of turns, or 0 for no limit")
