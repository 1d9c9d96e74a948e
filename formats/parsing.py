"""A parser of Python's library, with all its errors as one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from .files import Fault

_Parsed = TypeVar("_Parsed")


def parsed(
    load: Callable[[str], _Parsed], text: str, path: Path, language: str, fault: Fault, own: Callable[[ValueError], str]
) -> _Parsed:
    """``load(text)``. Raises `fault` of a message: `own` says where and what the parser's own error is, empty for any
    other ValueError.
    """
    try:
        return load(text)
    except ValueError as error:
        if found := own(error):
            raise fault(found) from None
        # Of int(): more digits than Python converts.
        raise fault(f"{path}: not {language} that can be read: a number has thousands of digits") from None
    except RecursionError:
        raise fault(f"{path}: not {language} that can be read: too many brackets within each other") from None
