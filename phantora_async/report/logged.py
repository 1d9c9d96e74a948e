"""Finds what the script itself logged about its speed: tokens, samples or images a second, steps a second, TFLOP/s.

Log lines are not an interface. What is found is repeated as it stands there, with the rank whose log has it; nothing
else of the report depends on it. A form that is not known is not found.

Only what belongs to training counts. The rank tells how long its log is at the end of each step, so that each line is
known to be printed in some step, or before or after all of them:

* in the steps that count: rates of named things (tokens/s), but on lines that speak of evaluation;
* of iterations (`it/s`, any progress bar has them): if the same bar stands in the output of two steps or more, and has
  come further from one to the next;
* after the last step: what has the form of a line of an earlier step, and summaries of the whole training.

Without steps, the rates of named things count, wherever they stand. Where a process says in the log that its clock is
this machine's, no rate is repeated: nobody can tell which of the processes that share the log has printed it.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from emu.contract.clocks import REAL_TIME

READ_NBYTES = 1 << 20
"""The bytes that are read from the end of a log."""
MOST_TEXT = 60
_NUMBER = r"([0-9][0-9,]*(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?)"
_PER_S = r"\s?(?:/\s?(?:s|sec|secs|second)|per sec(?:ond)?)\b"
_NOT_A_DATA_SET = r"(?!\])"
"""Excludes the progress bars of Hugging Face's data sets, which end so, and show how fast they are read: `1234.56
examples/s]`.
"""
_FORMS: Sequence[tuple[str, re.Pattern[str]]] = tuple(
    (rate, re.compile(form, re.IGNORECASE))
    for rate, form in (
        ("tokens/s", rf"{_NUMBER}\s?(?:tokens?|tok){_PER_S}"),
        ("tokens/s", rf"\btps: ?{_NUMBER}"),  # torchtitan, of one GPU
        ("tokens/s", rf"['\"]?(?:train_)?tokens_per_sec(?:ond)?(?:_per_gpu)?['\"]?[:=] ?['\"]?{_NUMBER}"),
        ("tokens/s", rf"(?:tokens?|tok){_PER_S}(?:/gpu)?\)?[:=] *{_NUMBER}"),
        ("samples/s", rf"['\"]?train_samples_per_second['\"]?[:=] ?['\"]?{_NUMBER}"),  # HF Trainer
        ("samples/s", rf"\bRunningAvgSamplesPerSec={_NUMBER}"),  # DeepSpeed
        ("samples/s", rf"{_NUMBER}\s?(?:samples?|examples?|sequences?|seqs?){_PER_S}{_NOT_A_DATA_SET}"),
        ("samples/s", rf"(?:samples?|examples?){_PER_S}\)?[:=] *{_NUMBER}"),
        ("images/s", rf"{_NUMBER}\s?(?:images?|imgs?){_PER_S}"),
        ("images/s", rf"(?:images?|imgs?){_PER_S}\)?[:=] *{_NUMBER}"),
        ("steps/s", rf"['\"]?train_steps_per_second['\"]?[:=] ?['\"]?{_NUMBER}"),
        ("steps/s", rf"{_NUMBER}\s?it/s"),  # tqdm, Lightning
        ("TFLOP/s", rf"throughput per GPU \(TFLOP/s/GPU\): ?{_NUMBER}"),  # Megatron-LM
        ("TFLOP/s", rf"\btflops: ?{_NUMBER}"),  # torchtitan
        ("TFLOP/s", rf"{_NUMBER}\s?TFLOPS?(?:/s)?(?:/gpu)?\b"),
        ("MFU", rf"\bmfu\)?[:=]? *{_NUMBER} ?%"),
    )
)
_COLOURS = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
_SUMMARY = re.compile(r"train_\w+_per_second")
"""Matches figures of the whole training, which are printed at its end."""
_EVALUATION = re.compile(r"\b(?:eval|evaluat|valid|test|infer|predict|generat)", re.IGNORECASE)
_COUNT = re.compile(r"(\d+)(?:/(\d+|\?))?")
_ITERATIONS = re.compile(r"it/s$")


@dataclass(frozen=True, slots=True)
class Log:
    """The log of one rank."""

    rank: int
    path: Path
    ends: Sequence[int] = ()
    """The log's length in bytes at the end of each step; empty: not known."""
    counted: tuple[int, int] | None = None
    """The numbers, from 0, of the step ends between which steps count; None: there are none."""


class _Found(NamedTuple):
    """A rate on one line."""

    rate: str
    value: float
    text: str
    step: int
    """The number of steps that had ended when it was printed."""
    line: str
    """The words that stand before it, without numbers."""
    progress: tuple[int, str] | None
    """The last `12/100` before it; `("12", "")` for a lone number."""


def logged_rates(logs: Sequence[Log]) -> list[dict[str, Any]]:
    """The last value of each rate in the first log that has any. `logs`: in order of importance. ``window``: `steps`
    that count, the whole `training`, or the `run`.
    """
    for log in logs:
        found = [one for one in _found(log) if not _EVALUATION.search(one.line)]
        rates = {one.rate: (one, window) for one, window in _of_training(found, log)}
        if rates:
            return [
                {"rank": log.rank, "rate": rate, "value": one.value, "text": one.text, "window": window}
                for rate, (one, window) in rates.items()
            ]
    return []


def _of_training(found: Sequence[_Found], log: Log) -> Iterator[tuple[_Found, str]]:
    """Yields the rates that belong to training, each with its window, in order."""
    if log.counted is None or not log.ends:
        yield from ((one, "run") for one in found if not _ITERATIONS.search(one.text))
        return
    first, last = log.counted
    lines: dict[str, list[_Found]] = {}
    for one in found:
        if one.step <= first:
            lines.setdefault(one.line, []).append(one)
            continue
        before = lines.setdefault(one.line, [])
        before.append(one)
        if _SUMMARY.search(one.text):
            yield one, "training"
        elif _ITERATIONS.search(one.text):
            if _advances(before):
                yield one, "steps"
        elif one.step <= last or len({each.step for each in before}) > 1:
            yield one, "steps"


def _advances(same: Sequence[_Found]) -> bool:
    """Returns true if a bar comes further with the steps. A bar that is filled within each step shows its end after
    each.
    """
    at_ends = {one.step: one.progress for one in same}
    if len(at_ends) < 2:
        return False
    before, now = list(at_ends.values())[-2:]
    return before is not None and now is not None and before[1] == now[1] and before[0] < now[0]


def _found(log: Log) -> Iterator[_Found]:
    """Yields the rates in order of their places; of several with the same name on one line only the last one."""
    begin, data = _end_of(log.path)
    if REAL_TIME.encode() in data:
        return
    place = begin
    for piece in re.split(rb"([\r\n]+)", data):
        step = bisect_right(log.ends, place)
        place += len(piece)
        text = _COLOURS.sub("", piece.decode(errors="replace"))
        for rate, (value, said, at) in sorted(_rates(text).items(), key=lambda item: item[1][2]):
            before = text[:at]
            counts = _COUNT.findall(before)
            fractions = [count for count in counts if count[1]] or counts
            count = (int(fractions[-1][0]), fractions[-1][1]) if fractions else None
            yield _Found(rate, value, said, step, _without_numbers(before), count)


def _without_numbers(text: str) -> str:
    """The words of the line: numbers and the drawing of a bar change."""
    return " ".join(re.findall(r"[A-Za-z_]{2,}", text))


def _rates(text: str) -> dict[str, tuple[float, str, int]]:
    """The rates of a text: value, text and place. Of several forms of one rate the last one counts."""
    found: dict[str, tuple[float, str, int]] = {}
    ends: dict[str, int] = {}
    for rate, form in _FORMS:
        last = None
        for last in form.finditer(text):  # noqa: B007 - the last one counts
            pass
        if last is not None and last.end() > ends.get(rate, -1):
            ends[rate] = last.end()
            said = " ".join(last[0].replace("'", "").replace('"', "").split())
            found[rate] = float(last[1].replace(",", "")), said[:MOST_TEXT], last.start()
    return found


def _end_of(path: Path) -> tuple[int, bytes]:
    """Reads the end of the log. Returns the offset at which it begins, and the bytes."""
    try:
        with path.open("rb") as log:
            log.seek(0, 2)
            begin = max(log.tell() - READ_NBYTES, 0)
            log.seek(begin)
            return begin, log.read()
    except OSError:
        return 0, b""
