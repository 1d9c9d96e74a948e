"""Values as error messages repeat them."""

from __future__ import annotations

import reprlib

MOST_SHOWN = 60

_repr = reprlib.Repr()
_repr.maxlevel, _repr.maxlist, _repr.maxdict = 2, 20, 20  # YAML's references make a list of any size of a few lines
_repr.maxstring = _repr.maxlong = _repr.maxother = 1000


def shown(value: object) -> str:
    """A wrong value, in at most MOST_SHOWN characters."""
    try:
        text = _repr.repr(value)
    except ValueError:  # of int: hexadecimal digits of which Python writes no decimal ones
        text = "a number of thousands of digits"
    return text if len(text) <= MOST_SHOWN else f"{text[:MOST_SHOWN]}..."
