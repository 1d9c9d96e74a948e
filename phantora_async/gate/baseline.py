"""Figures of jobs as they were stored earlier, with what they are of, in a JSON file beside the jobs' file."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from formats.files import read_bytes, write_whole
from phantora_async.budget import FIGURES
from phantora_async.errors import NotWritten, UsageError
from phantora_async.gate.digest import compared
from phantora_async.wording import short

FORMAT = 2
MOST_NBYTES = 1 << 28


@dataclass(frozen=True, slots=True)
class Stored:
    """The figures and the setup that the baseline keeps of one job."""

    figures: Mapping[str, float]
    """The figures by their name."""
    digest: Mapping[str, Any] | None = None
    """The setup and what the figures consist of, as ``digest`` makes it."""


Baseline = dict[str, Stored]
"""The jobs as they were, by name."""


def path_beside(jobs: Path) -> Path:
    """The path of the baseline: ``budgets.toml`` has ``budgets.baseline.json``."""
    return jobs.with_suffix(".baseline.json")


def read(path: Path) -> Baseline:
    """Reads the baseline; it is empty if there is no such file. Raises UsageError."""
    try:
        content = read_bytes(path, MOST_NBYTES)
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise UsageError(f"{short(path)}: {error.strerror or error}") from None
    wrong = UsageError(f"{short(path)} is no baseline", "--update writes it anew")
    try:
        document = json.loads(content)
    except (ValueError, RecursionError):
        raise wrong from None
    if isinstance(document, dict) and document.get("format") == 1:
        raise UsageError(
            f"{short(path)} is of an earlier version, which did not keep what its figures are of",
            "--update writes it anew",
        )
    if not isinstance(document, dict) or document.get("format") != FORMAT or not isinstance(document.get("jobs"), dict):
        raise wrong
    try:
        return {name: _stored(one) for name, one in document["jobs"].items()}
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError):
        raise wrong from None


def _stored(one: Any) -> Stored:
    """Reads one job. Raises one of several errors for anything else."""
    figures, kept = dict(one["figures"]), one["digest"]
    for name, value in figures.items():
        if name not in FIGURES or type(value) not in (int, float) or not math.isfinite(value) or value <= 0:
            raise ValueError(name)
    if kept is not None:
        compared(kept, kept)  # what cannot be compared with itself cannot be compared later
    return Stored(figures, kept)


def write(path: Path, baseline: Mapping[str, Stored]) -> None:
    """Writes the baseline. Raises NotWritten."""
    jobs = {name: {"figures": dict(one.figures), "digest": one.digest} for name, one in baseline.items()}
    text = json.dumps({"format": FORMAT, "jobs": jobs}, indent=1, sort_keys=True, allow_nan=False) + "\n"
    try:
        write_whole(path, text.encode())
    except OSError as error:
        raise NotWritten(f"cannot write {short(path)}: {error.strerror}") from None
