"""Figures of variants, for a terminal and as CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence

from phantora_async.replaying.variants import Outcome

NAME = 60
"""Characters of a name that are shown."""
COLUMNS = ("variant", "step_ms", "virtual_s", "other_states", "left")


def as_text(outcomes: Sequence[Outcome]) -> str:
    """The shortest step first; variants without figures last."""
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
    """In the order of the variants."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(COLUMNS)
    for one in outcomes:
        figures = ["", "", ""] if one.left else [one.step_ns / 1e6, one.virtual_ns / 1e9, one.other_states]
        writer.writerow([one.variant.name, *figures, one.left])
    return out.getvalue()
