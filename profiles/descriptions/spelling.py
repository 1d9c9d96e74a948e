"""Names of descriptions as people spell them: ``H100``, ``A100-80GB``, ``NVIDIA GeForce RTX 4090``, ``h100_sxm``."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

MAKERS = {"nvidia", "geforce", "tesla", "gpu"}
"""The words that do not distinguish one described GPU from another."""


def _words(name: str) -> list[str]:
    """The words of a name in lower case, without the maker; ``80GB`` and ``80 G`` are ``80g``."""
    text = re.sub(r"([0-9])\s*gi?b?(?![a-z0-9])", r"\1g", name.lower())
    return [word for word in re.findall(r"[a-z0-9]+", text) if word not in MAKERS]


def spelt_otherwise(name: str, known: Mapping[str, Sequence[str]]) -> list[str]:
    """The known names that this one is: the same but for case, separators and the order of words, with any of the
    words that may be added (the values of `known`).
    """
    words = _words(name)
    return [one for one, also in known.items() if words and _is(words, _words(one), set(also))]


def _is(words: list[str], name: list[str], also: set[str]) -> bool:
    if set(name) <= set(words) <= {*name, *also}:
        return True
    glued, begin = "".join(words), "".join(name)
    return glued.startswith(begin) and _consists(glued.removeprefix(begin), also)


def _consists(text: str, words: set[str]) -> bool:
    return not text or any(_consists(text.removeprefix(word), words) for word in words if text.startswith(word))


def variants_of(name: str, known: Mapping[str, Sequence[str]]) -> list[str]:
    """The known names that this one leaves open: all its words are in theirs."""
    words = set(_words(name))
    return [one for one, also in known.items() if words and words <= {*_words(one), *also}]
