"""Names that were not found, and what was probably meant."""

from __future__ import annotations

import difflib
import itertools
import os
from collections.abc import Iterable

MOST_MEANT = 3
MOST_LISTED = 8
"""Names that a message lists if none is like the one that was given."""
MOST_BESIDE = 1000
"""Files of a folder that are looked at."""
LIKENESS = 0.65
"""The likeness of two names, 0 to 1, from which on one may be meant by the other."""
CLOSE = 0.1
"""Names that are so much less like it than the likeliest one are left out."""


def nearest(name: str, known: Iterable[str]) -> list[str]:
    """The known names that are most like this one, the likeliest first; else those that begin with it. Upper and lower
    case are alike. Dashes before options, which all have, make none alike.
    """
    dashes = name[: len(name) - len(name.lstrip("-"))]
    by_lower = {one.lower().removeprefix(dashes): one for one in known}
    name = name[len(dashes) :].lower()
    likeness = difflib.SequenceMatcher(b=name)

    def ratio(lower: str) -> float:
        likeness.set_seq1(lower)
        return likeness.ratio()

    found = difflib.get_close_matches(name, by_lower, MOST_MEANT, LIKENESS)
    if not found and name:
        return [one for lower, one in by_lower.items() if lower.startswith(name)][:MOST_LISTED]
    return [by_lower[one] for one in found if ratio(one) > ratio(found[0]) - CLOSE]


def meant(name: str, known: Iterable[str]) -> str:
    """``did you mean h200 or h100?``; empty if no known name is like this one."""
    return _asked(nearest(name, known))


def _asked(found: list[str]) -> str:
    return f"did you mean {' or '.join([', '.join(found[:-1]), found[-1]] if found[1:] else found)}?" if found else ""


def meant_or_known(name: str, known: Iterable[str]) -> str:
    """Asks whether the likeliest names were meant; if none is like this one, lists known names (of many, the first)."""
    names = list(known)
    shown = names[:MOST_LISTED]
    left = len(names) - len(shown)
    return meant(name, names) or f"known ones: {', '.join(shown)}" + (f" and {left} more" if left else "")


def meant_file(path: str) -> str:
    """``did you mean examples/train.py?`` if a name beside the file that is missing, or its folder's, is like its name;
    else empty.
    """
    folder, name = os.path.split(path)
    if folder and not os.path.isdir(folder):
        above, folder_name = os.path.split(folder)
        paths = (os.path.join(above, one, name) for one in nearest(folder_name, _beside(above)))
        found = [one for one in paths if os.path.exists(one)]
        return f"did you mean {found[0]}?" if found else ""
    return _asked([os.path.join(folder, one) for one in nearest(name, _beside(folder))])


def _beside(folder: str) -> list[str]:
    try:
        with os.scandir(folder or ".") as entries:
            return [entry.name for entry in itertools.islice(entries, MOST_BESIDE)]
    except OSError:
        return []
