"""Decides how long a run waits, in real time, before it ends or goes on without somebody: by ``--stall-timeout``."""

from __future__ import annotations

STALL_S = 1800.0
"""The real seconds that a run waits for a rank that others wait for, or in which nothing is done: a rank may compute
for long. It is gloo's default and three times NCCL's, since many ranks share few processors here.
"""


def limit_s(given_s: float | None, default_s: float) -> float:
    """The limit of a wait in seconds. `given_s`: ``--stall-timeout``; None: the user has not given it, and the wait has
    the limit `default_s`; 0: there is no limit.
    """
    if given_s is None:
        return default_s
    return given_s or float("inf")
