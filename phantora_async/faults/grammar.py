"""Parses texts of faults: a small grammar of words, numbers with units and periods. A text that does not follow it is
refused with what was expected at that place, and with the word that was probably meant.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Sequence

from phantora_async.faults.kinds import (
    DEFAULT_JITTER_EVERY_NS,
    DeadGpu,
    DeadNic,
    DeadNode,
    EccRetry,
    Fault,
    FaultError,
    FlappingLink,
    JitteryHost,
    Period,
    SlowGpu,
    SlowHost,
    SlowLink,
    SlowLoader,
)
from phantora_async.faults.pace import FULL_PACE, NEVER
from phantora_async.wording import UNITS_NS, printable

FORMS = (
    "gpu RANK at SHAREx [PERIOD]",
    "gpu RANK ecc retry TIME at TIME",
    "gpu RANK dead at TIME [for TIME|until TIME]",
    "node SERVER dead at TIME",
    "nic NAME dead at TIME",
    "link NAME at SHAREx|down [PERIOD]",
    "link NAME flaps every TIME down TIME [PERIOD]",
    "host SERVER at SHAREx [PERIOD]",
    "host SERVER jitter PERCENT% [every TIME] seed NUMBER",
    "loader RANK +TIME every NUMBER batches",
)
"""PERIOD is `from TIME`, `until TIME`, `for TIME` after a `from`, or both ends; without it a fault lasts always."""
MOST_NS = 1 << 50
"""The latest instant in ns: about 13 days, as far as the network's clock reaches."""
MOST_NUMBER = 1 << 31
MOST_JITTER = FULL_PACE // 2
_DECIMAL = r"[0-9]{1,12}(?:\.[0-9]{1,9})?"
_UNITS = "|".join(UNITS_NS)


class _Words:
    """The words of a fault's text that are still to be read."""

    def __init__(self, text: str) -> None:
        self.text = text
        self._left = text.split()
        self._before = ""

    def refuse(self, expected: str, found: str | None = None, hint: str = "") -> FaultError:
        if found is None:
            found = self._left[0] if self._left else ""
        where = f"after {self._before!r}: " if self._before else ""
        shown = printable(found[:60]) if found else "the end"
        return FaultError(f"fault {printable(self.text[:200])!r}: {where}expected {expected}, found {shown}", hint)

    def take(self) -> str:
        self._before = self._left.pop(0)
        return self._before

    def next_is(self, word: str) -> bool:
        return bool(self._left) and self._left[0] == word

    def choose(self, *choices: str) -> str:
        """Reads the next word, which must be one of these."""
        if self._left and self._left[0] in choices:
            return self.take()
        found = self._left[0] if self._left else ""
        raise self.refuse(" or ".join(choices), hint=_did_you_mean(found, choices) or _forms())

    def maybe(self, word: str) -> bool:
        if not self.next_is(word):
            return False
        self.take()
        return True

    def matching(self, pattern: str, expected: str, meant: Callable[[str], str] = lambda found: "") -> re.Match[str]:
        """Reads a word that the pattern matches. `meant` returns what a wrong word probably means, or an empty text."""
        found = self._left[0] if self._left else ""
        match = re.fullmatch(pattern, found)
        if match is None:
            guess = meant(found)
            raise self.refuse(expected, hint=f"did you mean {guess}?" if guess else "")
        self.take()
        return match

    def number(self, what: str, least: int = 0) -> int:
        value = int(self.matching(r"[0-9]{1,10}", what)[0])
        if not least <= value < MOST_NUMBER:
            raise self.refuse(f"{what} of at least {least}", str(value))
        return value

    def time(self, sign: str = "", least_ns: int = 0) -> int:
        """Reads a time, in nanoseconds."""
        expected = f"{sign}a time such as {sign}500ms, {sign}10s or {sign}2m"
        match = self.matching(rf"{re.escape(sign)}({_DECIMAL})({_UNITS})", expected, _time_meant)
        at_ns = _scaled(match[1], UNITS_NS[match[2]])
        if at_ns is None:
            raise self.refuse("a whole number of nanoseconds", match[0])
        if not least_ns <= at_ns <= MOST_NS:
            raise self.refuse("a time of more than 0 and at most 13 days", match[0])
        return at_ns

    def share(self) -> int:
        """Reads a share, in millionths."""
        match = self.matching(rf"({_DECIMAL})x", "a share of the speed such as 0.7x", _share_meant)
        share = _scaled(match[1], FULL_PACE)
        if share is None or not 0 < share <= FULL_PACE:
            raise self.refuse("a share above 0x and at most 1x, with at most six decimals", match[0])
        return share

    def period(self) -> Period:
        return self.period_from(self.time() if self.maybe("from") else 0)

    def period_from(self, from_ns: int) -> Period:
        if self.next_is("for"):
            self.take()
            until_ns = from_ns + self.time(least_ns=1)
        else:
            until_ns = self.time(least_ns=1) if self.maybe("until") else NEVER
        if until_ns <= from_ns:
            raise self.refuse("an end after the beginning", self._before)
        return Period(from_ns, until_ns)

    def end(self, *could_follow: str) -> None:
        if self._left:
            expected = f"{', '.join(could_follow)} or the end" if could_follow else "the end"
            raise self.refuse(expected, hint=_did_you_mean(self._left[0], could_follow))


def parse(text: str) -> Fault:
    """Reads the text of a fault. Raises FaultError."""
    words = _Words(text)
    if not text.strip():
        raise FaultError("fault: the text is empty", _forms())
    return _KINDS[words.choose(*_KINDS)](words)


def _gpu(words: _Words) -> Fault:
    rank = words.number("the number of a rank")
    match words.choose("at", "ecc", "dead"):
        case "at":
            return _slow(words, lambda share, period: SlowGpu(rank, share, period))
        case "dead":
            return DeadGpu(rank, _death(words, "until", "for"))
    words.choose("retry")
    for_ns = words.time(least_ns=1)
    words.choose("at")
    at_ns = words.time()
    words.end()
    return EccRetry(rank, for_ns, at_ns)


def _slow(words: _Words, made: Callable[[int, Period], Fault]) -> Fault:
    fault = made(words.share(), words.period())
    words.end("from", "until", "for")
    return fault


def _death(words: _Words, *may_follow: str) -> Period:
    words.choose("at")
    from_ns = words.time()
    period = words.period_from(from_ns) if may_follow else Period(from_ns)
    words.end(*may_follow)
    return period


def _node(words: _Words) -> Fault:
    server = words.number("the number of a server")
    words.choose("dead")
    return DeadNode(server, _death(words))


def _nic(words: _Words) -> Fault:
    name = words.matching(r"\S+", "the name of a NIC's port, such as node000/nic2")[0]
    words.choose("dead")
    return DeadNic(name, _death(words))


def _link(words: _Words) -> Fault:
    name = words.matching(r"\S+", "the name of a link")[0]
    match words.choose("at", "down", "flaps"):
        case "at":
            return _slow(words, lambda share, period: SlowLink(name, share, period))
        case "down":
            fault: Fault = SlowLink(name, 0, words.period())
        case _:
            words.choose("every")
            every_ns = words.time(least_ns=1)
            words.choose("down")
            down_ns = words.time(least_ns=1)
            if down_ns >= every_ns:
                raise words.refuse("a time shorter than that between two flaps")
            fault = FlappingLink(name, every_ns, down_ns, words.period())
    words.end("from", "until", "for")
    return fault


def _host(words: _Words) -> Fault:
    server = words.number("the number of a server")
    if words.choose("at", "jitter") == "at":
        return _slow(words, lambda share, period: SlowHost(server, share, period))
    match = words.matching(rf"({_DECIMAL})%", "a percentage such as 5%", lambda found: _percent_meant(found))
    jitter = _scaled(match[1], FULL_PACE // 100)
    if jitter is None or not 0 < jitter <= MOST_JITTER:
        raise words.refuse("a percentage above 0% and at most 50%, with at most four decimals", match[0])
    every_ns = words.time(least_ns=1000) if words.maybe("every") else DEFAULT_JITTER_EVERY_NS
    words.choose("seed")
    seed = words.number("a number")
    words.end()
    return JitteryHost(server, jitter, every_ns, seed)


def _loader(words: _Words) -> Fault:
    rank = words.number("the number of a rank")
    more_ns = words.time(sign="+", least_ns=1)
    words.choose("every")
    every = words.number("a number of batches", least=1)
    words.choose("batches", "batch")
    words.end()
    return SlowLoader(rank, more_ns, every)


_KINDS: dict[str, Callable[[_Words], Fault]] = {
    "gpu": _gpu,
    "node": _node,
    "nic": _nic,
    "link": _link,
    "host": _host,
    "loader": _loader,
}


def _forms() -> str:
    return f"forms: {'; '.join(FORMS)}"


def _did_you_mean(found: str, words: Sequence[str]) -> str:
    """Names the word with the same letters, or a similar one; empty if there is none."""
    alike = [word for word in words if sorted(word) == sorted(found.lower())]
    alike = alike or difflib.get_close_matches(found.lower(), words, 1)
    return f"did you mean {alike[0]}?" if alike else ""


def _scaled(decimal: str, scale: int) -> int | None:
    """The decimal times `scale`; None if that is no whole number."""
    whole, _, fraction = decimal.partition(".")
    value, rest = divmod(int(whole + fraction) * scale, 10 ** len(fraction))
    return None if rest else value


def _time_meant(found: str) -> str:
    match = re.fullmatch(rf"(\+?{_DECIMAL})([a-z]*)", found.lower())
    if match is None:
        return ""
    if not match[2]:
        return f"{match[1]}s"
    long = {"sec": "s", "secs": "s", "second": "s", "seconds": "s", "min": "m", "mins": "m", "minutes": "m"}
    long |= {"hour": "h", "hours": "h", "msec": "ms", "usec": "us"}
    return f"{match[1]}{long[match[2]]}" if match[2] in long else ""


def _share_meant(found: str) -> str:
    if re.fullmatch(_DECIMAL, found):
        return f"{found}x"
    percent = re.fullmatch(r"([0-9]{1,2})%", found)
    return f"{int(percent[1]) / 100:g}x" if percent else ""


def _percent_meant(found: str) -> str:
    return f"{found}%" if re.fullmatch(_DECIMAL, found) else ""
