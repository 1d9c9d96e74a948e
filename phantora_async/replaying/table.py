"""Writes the figures of variants, for a terminal, as CSV and as JSON."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from formats.files import write_whole
from phantora_async.errors import NotWritten, UsageError
from phantora_async.replaying.variants import Outcome
from phantora_async.wording import short

NAME = 60
"""The characters of a name that are shown."""
COLUMNS = ("variant", "step_ms", "virtual_s", "other_states", "left")


def as_text(outcomes: Sequence[Outcome]) -> str:
    """The figures as text, the shortest step first; variants without figures last."""
    good = sorted((one for one in outcomes if not one.left), key=lambda one: one.step_ns)
    width = min(max(len(one.variant.name) for one in outcomes), NAME)
    lines = [f"{'variant':<{width}}  {'step':>12}  {'to the best':>11}  {'virtual':>12}"]
    for one in good:
        share = one.step_ns / good[0].step_ns - 1 if good[0].step_ns else 0.0
        lines.append(
            f"{one.variant.name[:NAME]:<{width}}  {one.step_ns / 1e6:>9.2f} ms  {share:>+11.1%}  "
            f"{one.virtual_ns / 1e9:>10.3f} s"
        )
    lines += [f"{one.variant.name[:NAME]:<{width}}  {one.left}" for one in outcomes if one.left]
    return "\n".join(lines)


def as_csv(outcomes: Sequence[Outcome]) -> str:
    """The figures as CSV, in the order of the variants."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(COLUMNS)
    for one in outcomes:
        figures = ["", "", ""] if one.left else [one.step_ns / 1e6, one.virtual_ns / 1e9, one.other_states]
        writer.writerow([one.variant.name, *figures, one.left])
    return out.getvalue()


def as_json(outcomes: Sequence[Outcome]) -> str:
    """The figures as JSON, in the order of the variants, with what each changes."""
    rows = [
        {
            "variant": one.variant.name,
            "changes": {name: value for name, value in asdict(one.variant.changes).items() if value},
            "step_ns": None if one.left else one.step_ns,
            "virtual_ns": None if one.left else one.virtual_ns,
            "other_states": None if one.left else one.other_states,
            "left": one.left,
        }
        for one in outcomes
    ]
    return json.dumps(rows, indent=1) + "\n"


FORMS = {".csv": as_csv, ".json": as_json}


def check_path(path: Path) -> None:
    """Raises UsageError for a table of another form, and for one whose folder is missing: playing may take hours."""
    if path.suffix not in FORMS:
        raise UsageError(f"--table {short(path)}: expected a name that ends in {' or '.join(FORMS)}")
    if not path.absolute().parent.is_dir():
        raise UsageError(f"--table {short(path)}: there is no folder {short(path.parent)}", "make it before")
    if path.is_dir():
        raise UsageError(f"--table {short(path)}: this is a folder", "name a file")


def write(path: Path, outcomes: Sequence[Outcome]) -> None:
    """Writes the table in the form that the path's suffix names. Raises NotWritten."""
    try:
        write_whole(path, FORMS[path.suffix](outcomes).encode())
    except OSError as error:
        raise NotWritten(f"cannot write {short(path)}: {error.strerror}") from None
