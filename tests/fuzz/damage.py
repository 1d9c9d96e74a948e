"""Damaged inputs: what a disk, an editor or another program may make of a good one. How many are tried.

``PHANTORA_FUZZ=50 python -m pytest tests/fuzz`` tries fifty times as many as usual, other ones each time. Without it
the same ones are tried in every run, in about a minute.
"""

from __future__ import annotations

import copy
import os
from collections.abc import Callable
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

TIMES = float(os.environ.get("PHANTORA_FUZZ", "1"))
WORDS = (
    *(
        "",
        "-1",
        "--5",
        "0",
        "1e400",
        "NaN",
        "inf",
        "9" * 30,
        "9" * 5000,
        "1_0",
        "0x10",
        "²",
        "true",
        "null",
        "[",
        "]",
        "{",
    ),
    *(
        "[" * 3000,
        '"',
        "'",
        "\\",
        ",",
        "\n",
        "\r\n",
        "=",
        "#",
        "\0",
        "\ufeff",
        "\x1b[31m",
        "\u202e",
        '"\\ud800"',
        "[bold]",
    ),
)
VALUES: tuple[Any, ...] = (
    *(None, True, False, 0, -1, 1, 2**31, 2**63, 10**400, 0.5, -0.0, float("inf"), float("nan"), 1e-320),
    *("", "x", "\x1b[31m", "\ud800", "[bold", "a\nb", [], [1], [[]], {}, {"a": 1}),
)


def fuzz(examples: int) -> Callable[[Any], Any]:
    """Decorates a test that tries so many inputs."""
    return settings(
        max_examples=max(1, round(examples * TIMES)),
        derandomize=TIMES == 1,
        database=None,
        suppress_health_check=list(HealthCheck),
    )


@st.composite
def damaged_text(draw: st.DrawFn, text: str) -> str:
    """Returns the text with some of it cut out, doubled, or replaced."""
    for _ in range(draw(st.integers(1, 3))):
        begin = draw(st.integers(0, len(text)))
        end = min(len(text), begin + draw(st.integers(0, 12)))
        middle = draw(st.one_of(st.sampled_from(WORDS), st.text(max_size=4), st.just(text[begin:end] * 2)))
        text = text[:begin] + middle + (text[end:] if draw(st.integers(0, 9)) else "")
    return text


@st.composite
def damaged_document(draw: st.DrawFn, document: Any) -> Any:
    """Returns the document with one or two of its values missing, doubled, or replaced."""
    document = copy.deepcopy(document)
    for _ in range(draw(st.integers(1, 2))):
        places = _places(document)
        if not places:
            break
        within, key = draw(st.sampled_from(places))
        if draw(st.integers(0, 4)) == 0:
            del within[key]
        elif isinstance(within, list) and draw(st.booleans()):
            within.append(within[key])
        else:
            within[key] = copy.deepcopy(draw(st.sampled_from(VALUES)))
    return document


def _places(value: Any) -> list[tuple[Any, Any]]:
    """Returns (container, key) of every inner value."""
    keys = list(value) if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
    return [place for key in keys for place in ((value, key), *_places(value[key]))]
