"""Decides how often the live page's state is made: it takes a small share of the coordinator's time, whatever it
costs.
"""

from __future__ import annotations

EVERY_S = 1.0
SHARE = 0.006
"""The share of a processor's time for each of three parts of the state: progress, ranks, the whole report."""
NBYTES_PER_S = 4e8
"""The bytes of state that are copied to sockets in a second, an assumption for a slow machine."""


class Pace:
    """Says when something is due again: ask ``due``, then report with ``took``."""

    def __init__(self, share: float = SHARE) -> None:
        self._share = share
        self._due_s = 0.0

    def due(self, now_s: float) -> bool:
        return now_s >= self._due_s

    def took(self, now_s: float, for_s: float, sent_nbytes: int = 0) -> None:
        """Records that making the state has taken so much processor time, and that so many bytes were sent to
        viewers.
        """
        self._due_s = now_s + max(EVERY_S, (for_s + sent_nbytes / NBYTES_PER_S) / self._share)
