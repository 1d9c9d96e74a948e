"""Figures of jobs as they were stored earlier, in a JSON file beside the jobs' file."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from formats.files import read_bytes, write_whole
from phantora_async.budget import FIGURES
from phantora_async.errors import NotWritten, UsageError
from phantora_async.wording import short

FORMAT = 1
MOST_NBYTES = 1 << 26
Baseline = dict[str, dict[str, float]]
"""The figures of jobs by their name, by job."""


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
        told = json.loads(content)
    except (ValueError, RecursionError):
        raise wrong from None
    if not isinstance(told, dict) or told.get("format") != FORMAT or not isinstance(told.get("jobs"), dict):
        raise wrong
    if not all(_is_job(one) for one in told["jobs"].values()):
        raise wrong
    return dict(told["jobs"])


def _is_job(one: Any) -> bool:
    return isinstance(one, dict) and all(
        name in FIGURES and type(value) in (int, float) and math.isfinite(value) and value > 0
        for name, value in one.items()
    )


def write(path: Path, baseline: Mapping[str, Mapping[str, float]]) -> None:
    """Writes the baseline. Raises NotWritten."""
    text = json.dumps({"format": FORMAT, "jobs": baseline}, indent=1, sort_keys=True) + "\n"
    try:
        write_whole(path, text.encode())
    except OSError as error:
        raise NotWritten(f"cannot write {short(path)}: {error.strerror}") from None
