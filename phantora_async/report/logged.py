"""What the script itself logged about its speed: tokens, samples or images a second, steps a second, TFLOP/s.

Log lines are not an interface. What is found is repeated as it stands there, with the rank whose log has it; nothing
else of the report depends on it. A form that is not known is not found.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

READ_NBYTES = 1 << 20
"""The end of a log."""
MOST_TEXT = 60
_NUMBER = r"([0-9][0-9,]*(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?)"
_PER_S = r"\s?(?:/\s?(?:s|sec|secs|second)|per sec(?:ond)?)\b"
_NOT_A_DATA_SET = r"(?!\])"
"""Hugging Face's data sets tell in progress bars, which end so, how fast they are read: `1234.56 examples/s]`."""
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
)  # fmt: skip
_COLOURS = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")


def logged_rates(logs: Sequence[tuple[int, Path]]) -> list[dict[str, Any]]:
    """The last of each rate in the first log that has any. `logs`: ranks and their files, in order of importance."""
    for rank, path in logs:
        found = dict(_rates(_end_of(path)))
        if found:
            return [{"rank": rank, "rate": rate, "value": value, "text": text} for rate, (value, text) in found.items()]
    return []


def _rates(text: str) -> Iterator[tuple[str, tuple[float, str]]]:
    """Of several forms of one rate the one that comes last in the text."""
    ends: dict[str, int] = {}
    for rate, form in _FORMS:
        last = None
        for last in form.finditer(text):  # noqa: B007 - the last one counts
            pass
        if last is not None and last.end() > ends.get(rate, -1):
            ends[rate] = last.end()
            said = " ".join(last[0].replace("'", "").replace('"', "").split())
            yield rate, (float(last[1].replace(",", "")), said[:MOST_TEXT])


def _end_of(path: Path) -> str:
    try:
        with path.open("rb") as log:
            log.seek(0, 2)
            log.seek(max(log.tell() - READ_NBYTES, 0))
            return _COLOURS.sub("", log.read().decode(errors="replace"))
    except OSError:
        return ""
