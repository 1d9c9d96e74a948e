"""The history of benchmarks: a file with one JSON object a line, and the comparison with the last comparable one."""

from __future__ import annotations

import json
import os
import platform
import subprocess
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psutil

from formats.files import MOST_DATA_NBYTES, read_bytes
from phantora_async.bench.jobs import BenchJob
from phantora_async.bench.measurement import Point
from phantora_async.errors import NotWritten
from phantora_async.version import VERSION

SCHEMA = 1
WORSE = 1.15
"""The factor of growth from which a figure is marked as worse."""
COMPARED = (
    ("s/step", "step_s"),
    ("CPU", "cpu"),
    ("coordinator", "cpu", "coordinator"),
    ("wall x cores / CPU", "wall_ratio"),
    ("memory", "pss_nbytes"),
)
"""The figures that are compared: title, field of a point, entry in that field."""
Entry = dict[str, Any]


def entry(job: BenchJob, points: Sequence[Point], torch: str, load: float, complete: bool) -> Entry:
    return {
        "schema": SCHEMA,
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": machine(),
        "versions": {
            "phantora_async": VERSION,
            "commit": commit(Path(__file__).parent),
            "python": platform.python_version(),
            "torch": torch,
        },
        "job": job.key(),
        "load_before": round(load, 2),
        "complete": complete,
        "points": [point.document() for point in points],
    }


def machine() -> dict[str, Any]:
    """Describes this machine by the properties that decide how fast it is: name, processor, number of processors,
    memory.
    """
    model = ""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        model = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")
    except OSError:
        pass
    gib = psutil.virtual_memory().total / 2**30
    return {"name": platform.node(), "cpu": model, "cpus": len(os.sched_getaffinity(0)), "memory_gib": round(gib, 1)}


def commit(folder: Path) -> str | None:
    """The commit of a checkout; None for an installed package."""
    try:
        shown = subprocess.run(
            ["git", "-C", str(folder), "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False
        )
    except OSError:
        return None
    return shown.stdout.strip() or None if shown.returncode == 0 else None


def append(path: Path, one: Entry) -> None:
    """Appends the entry to the file. Raises NotWritten."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        before = path.stat().st_size if path.exists() else 0
        try:
            with path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(one) + "\n")
        except OSError:
            os.truncate(path, before)  # half a line would spoil the next one
            raise
    except OSError as error:
        raise NotWritten(f"cannot write {path}: {error.strerror}") from None


def comparable(path: Path, one: Entry) -> Entry | None:
    """The last entry of the same machine and job. Lines that are no entries are passed over."""
    try:
        lines = read_bytes(path, MOST_DATA_NBYTES).decode(errors="replace").splitlines()
    except OSError:
        return None
    for line in reversed(lines):
        try:
            before = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(before, dict) and all(before.get(key) == one[key] for key in ("schema", "machine", "job")):
            return before
    return None


def comparison(before: Entry, now: Entry) -> list[str]:
    """A line for each case that both have: how figures changed, and which became worse."""
    versions = before.get("versions", {})
    which = versions.get("commit") or versions.get("phantora_async", "?")
    lines = [f"compared with {before.get('at', '?')} ({which}, torch {versions.get('torch', '?')}):"]
    if versions.get("torch") != now["versions"]["torch"]:
        lines[0] += " another version of torch"
    earlier = {_case(point): point for point in before.get("points", []) if not point.get("failure")}
    for point in now["points"]:
        old = earlier.get(_case(point))
        if old is None or point["failure"]:
            continue
        parts = []
        for title, *keys in COMPARED:
            a, b = _figure(old, *keys), _figure(point, *keys)
            if a and b:
                parts.append(f"{title} {b / a - 1:+.0%}{' WORSE' if b > a * WORSE else ''}")
        lines.append(f"  {point['ranks']:5d} {point['scaling']:<6}  {', '.join(parts)}")
    return lines if len(lines) > 1 else []


def _case(point: dict[str, Any]) -> tuple[Any, ...]:
    return point.get("ranks"), point.get("scaling"), point.get("micro_batches")


def _figure(point: dict[str, Any], key: str, part: str = "") -> float:
    value = point.get(key)
    if part:
        value = value.get(part) if isinstance(value, dict) else None
    return sum(value.values()) if isinstance(value, dict) else float(value or 0)
