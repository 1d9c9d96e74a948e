"""The policy of `--lengths`: how many tokens a generated response has, its end token included.

The command line checks it, and the ranks follow it. A length is drawn by the response's prompt, not by its place in a
batch: by the seed, the ids of the prompt's tokens, how many responses this prompt has had before, and the replica that
generates. So it is the same on every machine, and for every order of the prompts.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from statistics import NormalDist

from .policy import Policy, trace_lines

FORMS = "fixed:N, lognormal:MEAN,SIGMA or trace:FILE"
KINDS = FIXED, LOGNORMAL, TRACE = "fixed", "lognormal", "trace"
MOST_TOKENS = 1 << 30
_MOST_SIGMA = 5.0
_HALF = 1 << 52
"""Draws are the middles of so many equal parts of the range from 0 to 1, so that none is 0 or 1."""
_SHOWN = 24
"""The most characters of a wrong word that a message repeats."""
_NORMAL = NormalDist()


@dataclass(frozen=True, slots=True)
class LengthPolicy(Policy):
    """The policy by which responses have lengths."""

    mean: float = 0.0
    """The length of all responses (fixed), or the mean of their distribution (lognormal)."""
    sigma: float = 0.0
    """The standard deviation of the lengths' logarithms."""
    seed: int = 0
    lengths: tuple[tuple[int, ...], ...] = ()
    """The lines of the trace: a prompt has one of them, and its responses have lengths of that line."""

    def length(self, prompt: bytes, response: int, replica: int) -> int:
        """Returns the number of tokens of a response, 1 at least. `prompt`: of ``prompt_key``; `response`: how many
        responses the prompt has had before; `replica`: processes with the same number that generate the same responses
        draw the same lengths.
        """
        if self.kind == FIXED:
            return round(self.mean)
        if self.kind == TRACE:
            line = self.lengths[self._draw(prompt, "line") * len(self.lengths) // (2 * _HALF)]
            return line[self._draw(prompt, response, replica) * len(line) // (2 * _HALF)]
        share = (self._draw(prompt, response, replica) + 0.5) / (2 * _HALF)
        location = math.log(self.mean) - self.sigma**2 / 2
        return min(max(round(math.exp(location + self.sigma * _NORMAL.inv_cdf(share))), 1), MOST_TOKENS)

    def _draw(self, prompt: bytes, *of: object) -> int:
        """Returns a number from 0 to 2 * _HALF - 1 that follows from the arguments and the seed."""
        text = " ".join(map(str, (self.seed, *of))).encode()
        return int.from_bytes(hashlib.blake2b(prompt + text, digest_size=8).digest(), "little") >> 11


def prompt_key(tokens: Iterable[int]) -> bytes:
    """Returns what stands for a prompt of these tokens' ids."""
    return hashlib.blake2b(" ".join(map(str, tokens)).encode(), digest_size=16).digest()


def parse(text: str) -> LengthPolicy:
    """Reads the option's text. Raises ValueError, which says what is wrong, and OSError if the trace cannot be read."""
    kind, _, rest = text.partition(":")
    if kind == FIXED and rest:
        return LengthPolicy(text, FIXED, mean=_whole(rest, "length"))
    if kind == LOGNORMAL and rest:
        return _lognormal(text, rest)
    if kind == TRACE and rest:
        return LengthPolicy(text, TRACE, lengths=_read_trace(Path(rest)))
    raise ValueError(f"expected {FORMS}")


def _lognormal(text: str, rest: str) -> LengthPolicy:
    words = rest.split(",")
    if len(words) not in (2, 3):
        raise ValueError("expected lognormal:MEAN,SIGMA or lognormal:MEAN,SIGMA,SEED")
    mean, sigma = (float(word) if _NUMBER.fullmatch(word) else math.nan for word in words[:2])
    if not 1 <= mean <= MOST_TOKENS:
        raise ValueError(f"the mean {words[0][:_SHOWN]!r} is not a number of tokens from 1 to {MOST_TOKENS:,}")
    if not 0 <= sigma <= _MOST_SIGMA:
        raise ValueError(f"{words[1][:_SHOWN]!r}, the logarithm's deviation, is not a number from 0 to {_MOST_SIGMA:g}")
    seed = words[2] if len(words) == 3 else "0"
    if not seed.isdecimal() or not seed.isascii() or len(seed) > 10:
        raise ValueError(f"the seed {seed[:_SHOWN]!r} is not a whole number of at most ten digits")
    return LengthPolicy(text, LOGNORMAL, mean=mean, sigma=sigma, seed=int(seed))


_NUMBER = re.compile(r"[0-9]{1,12}(?:\.[0-9]{0,9})?")


def _whole(word: str, what: str) -> int:
    if not word.isdecimal() or not word.isascii() or len(word) > 10 or not 1 <= int(word) <= MOST_TOKENS:
        raise ValueError(f"the {what} {word[:_SHOWN]!r} is not a whole number of tokens from 1 to {MOST_TOKENS:,}")
    return int(word)


def _read_trace(path: Path) -> tuple[tuple[int, ...], ...]:
    """Reads a trace, whose lines are lengths."""
    lines = []
    for where, words in trace_lines(path):
        try:
            lines.append(tuple(_whole(word, "length") for word in words))
        except ValueError as error:
            raise ValueError(f"{where}: {error}") from None
    if not lines:
        raise ValueError(f"{path} has no lengths: expected lines of whole numbers")
    return tuple(lines)
