"""Estimates how much of a run is done, and how long the rest will take in real time.

The whole is known if `--steps` or `--until` says it, or if the script's log does: ``step 3/10`` and the like, or a
progress bar. The rest is assumed to go as fast as what has been done since the first progress was seen; starting the
ranks is no part of it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

READ_NBYTES = 1 << 14
"""The bytes that are read from the end of a log."""
_WORD = r"\b(?:steps?|iter(?:ation)?s?|batch(?:es)?)\b[ :=\[(]{1,12}"
_BEFORE = rf"(?:{_WORD}|\| ?|(?<!\S)[(\[] ?|^ *)"
_LOGGED = re.compile(rf"{_BEFORE}(\d{{1,9}}) ?/ {{0,8}}(\d{{1,9}})\b", re.IGNORECASE | re.MULTILINE)
_BAR_LABEL = re.compile(r"(.*\S): +\d+%\|")
"""Matches the label of a bar of tqdm: ``Loading weights:  46%|####      | 18/39``."""
_OF_STEPS = re.compile(r"step|iter|epoch|batch|train|loss", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Share:
    done: float
    whole: float
    source: str
    """Names the source from which the whole is known."""


class Remaining:
    """Estimates the remaining time: call ``look`` regularly, and ``document`` whenever the estimate is wanted."""

    def __init__(self) -> None:
        self._first: tuple[str, float, float] | None = None
        """The first progress: its source, how much was done, and when."""
        self._last: Share | None = None

    def look(self, share: Share | None, now_s: float) -> None:
        self._last = share
        if share is not None and share.done > 0 and (self._first is None or self._first[0] != share.source):
            self._first = share.source, share.done, now_s

    def document(self, now_s: float) -> dict[str, Any] | None:
        """The estimate; None if the whole is not known. ``remaining_s`` is None as long as nothing supports an
        estimate.
        """
        share = self._last
        if share is None:
            return None
        remaining_s = None
        if self._first is not None and share.done > self._first[1]:
            rate = (share.done - self._first[1]) / max(now_s - self._first[2], 1e-9)
            remaining_s = max(share.whole - share.done, 0.0) / rate
        return {
            "share": min(share.done / share.whole, 1.0) if share.whole else 0.0,
            "done": round(share.done),
            "whole": round(share.whole),
            "remaining_s": remaining_s,
            "source": share.source,
        }


def logged_steps(log: Path) -> Share | None:
    """The last count of steps in the log; None if it has none that is understood.

    A bar with a label that is not about steps counts something else: weights that are loaded, texts that are tokenized.
    """
    try:
        with log.open("rb") as file:
            file.seek(0, 2)
            file.seek(max(file.tell() - READ_NBYTES, 0))
            text = file.read().decode(errors="replace").replace("\r", "\n")
    except OSError:
        return None
    last = None
    for found in _LOGGED.finditer(text):
        done, whole = int(found[1]), int(found[2])
        label = _BAR_LABEL.match(text, text.rfind("\n", 0, found.end()) + 1, found.end())
        of_something_else = label is not None and not _OF_STEPS.search(label[1])
        if 0 <= done <= whole and whole > 1 and not of_something_else:
            last = Share(done, whole, f"the script's log, which counts to {whole}")
    return last
