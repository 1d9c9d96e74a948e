"""How long a run waits, in real time, before it ends or goes on without somebody: ``--stall-timeout`` decides all."""

from __future__ import annotations

STALL_S = 1800.0
"""Ranks that others wait for, and runs in which nothing is done: a rank may compute for long.
It is gloo's default and three times NCCL's, since many ranks share few processors here.
"""


def limit_s(given_s: float | None, default_s: float) -> float:
    """`given_s`: ``--stall-timeout``; None: the user has not given it, and each wait has a limit of its own; 0: there
    is no limit.
    """
    if given_s is None:
        return default_s
    return given_s or float("inf")
