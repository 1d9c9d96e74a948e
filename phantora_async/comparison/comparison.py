"""Compares several runs with the first of them."""

from __future__ import annotations

import html
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from phantora_async.comparison.causes import causes
from phantora_async.comparison.figures import (
    ComparedCalls,
    ComparedWork,
    Figure,
    Held,
    Part,
    apart,
    calls,
    collectives,
    collectives_left_out,
    families,
    figures,
    holders,
    kernels,
    memory_parts,
    parts,
    waits,
    without_calls,
    without_reasons,
)
from phantora_async.comparison.setup import DATA_SHAPES, Difference, differences
from phantora_async.errors import UsageError
from phantora_async.figures import has_steps
from phantora_async.report import used_no_gpu

SCHEMA = 1
LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"


@dataclass(frozen=True, slots=True)
class Side:
    """One of the compared runs."""

    name: str
    """The path of its report."""
    report: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Comparison:
    """The differences between several runs. ``print`` shows them as `phantora-async compare` does."""

    names: tuple[str, ...]
    """The names of the runs; values of all other fields are in this order."""
    remarks: tuple[str, ...]
    """Reasons why figures may not be comparable."""
    differences: tuple[Difference, ...]
    """The differences in the setup of the runs."""
    by_sizes: tuple[float, ...]
    """The share of each run's GPU time that depends on `--data-shapes`, if the runs differ in it alone."""
    figures: tuple[Figure, ...]
    parts: tuple[Part, ...]
    """The parts of a step, which add up to its time."""
    families: tuple[Part, ...]
    """The families of GPU work; work that runs at the same time counts twice."""
    kernels: tuple[ComparedWork, ...]
    """All kernels, those that changed most first."""
    collectives: tuple[ComparedWork, ...]
    """The collectives of the explained step; none without reasons."""
    calls: tuple[ComparedCalls, ...]
    """The collectives of a step by their sizes."""
    waits: tuple[ComparedCalls, ...]
    """The lines at which the host waits for the GPU."""
    memory: tuple[Held, ...]
    """The parts of the memory of the fullest GPU."""
    holders: tuple[Held, ...]
    """The lines that asked for the memory of the fullest GPU."""

    def causes(self, run: int = 1) -> list[str]:
        """Says in sentences why a run is slower or larger than the first one, or faster or smaller."""
        return causes(self, run)

    def document(self) -> dict[str, Any]:
        """The comparison as a JSON document."""
        others = range(1, len(self.names))
        changes = [{"change": [one.change(run) for run in others]} for one in self.figures]
        return {"schema": SCHEMA} | {
            "runs": list(self.names),
            "remarks": list(self.remarks),
            "differences": [asdict(one) for one in self.differences],
            "by_sizes": list(self.by_sizes),
            "figures": [asdict(one) | change for one, change in zip(self.figures, changes, strict=True)],
            "parts": [asdict(one) for one in self.parts],
            "families": [asdict(one) for one in self.families],
            "kernels": [asdict(one) for one in self.kernels],
            "collectives": [asdict(one) for one in self.collectives],
            "calls": [asdict(one) for one in self.calls],
            "waits": [asdict(one) for one in self.waits],
            "memory": [asdict(one) for one in self.memory],
            "holders": [asdict(one) for one in self.holders],
            "causes": [self.causes(run) for run in others],
        }

    def __str__(self) -> str:
        from phantora_async.comparison.text import comparison_text

        return comparison_text(self)

    def _repr_html_(self) -> str:
        """The comparison as HTML, for notebooks."""
        return f"<pre>{html.escape(str(self))}</pre>"


def compare(sides: Sequence[Side]) -> Comparison:
    """Compares the other runs with the first. Raises UsageError for fewer than two runs, or more than there are
    letters.
    """
    if len(sides) < 2:
        raise UsageError("nothing to compare with: name two runs or more", "phantora-async compare RUN_A RUN_B")
    if len(sides) > len(LETTERS):
        raise UsageError(f"{len(sides)} runs: at most {len(LETTERS)} can be compared at once")
    reports = [side.report for side in sides]
    set_up, works = differences(reports), kernels(reports)
    by_sizes = {one.what for one in set_up} == {DATA_SHAPES}
    return Comparison(
        names=tuple(side.name for side in sides),
        remarks=tuple(_remarks(reports)),
        differences=tuple(set_up),
        by_sizes=tuple(apart(works, run) for run in range(len(reports))) if by_sizes else (),
        figures=tuple(figures(reports)),
        parts=tuple(parts(reports)),
        families=tuple(families(reports)),
        kernels=tuple(works),
        collectives=tuple(collectives(reports)),
        calls=tuple(calls(reports)),
        waits=tuple(waits(reports)),
        memory=tuple(memory_parts(reports)),
        holders=tuple(holders(reports)),
    )


def _remarks(reports: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yields the reasons why figures may not be comparable. `A` is the first run."""
    simulated = [report["simulated"] for report in reports]
    for letter, report in zip(LETTERS, reports, strict=False):
        if report["failure"] is not None:
            yield f"{letter} failed with exit code {report['exit_code']}: its figures are those until then"
    for letter, one in zip(LETTERS, simulated, strict=False):
        if used_no_gpu(one):
            yield f"{letter} used no emulated GPU: its times are its script's on the host"
        elif not has_steps(one["step"]):
            yield f"no steps were found in {letter}: its step time is that of the whole run"
    if len({one["step"]["source"].split(":", 1)[0] for one in simulated}) > 1:
        yield "steps were found in different ways: step times are not compared"
    if len({one["world_size"] for one in simulated}) > 1:
        yield "the runs have different numbers of GPUs: a step may not be the same work; compare tokens/s, or one GPU"
    old = [letter for letter, report in zip(LETTERS, reports, strict=False) if "run" not in report]
    if old:
        yield (
            f"the report of {' and '.join(old)} is of an older version, which does not tell script, options and "
            "versions: differences in these are not known"
        )
    elif len({report["run"].get("script_sha256", "") or report["run"].get("script", "") for report in reports}) > 1:
        yield "the scripts differ: a step may not be the same work"
    if missing := without_reasons(reports):
        if len(missing) < len(reports) and without_calls(reports):
            letters = " and ".join(LETTERS[number] for number in missing)
            yield f"collectives are not compared one by one: {letters} has no reasons (run --reasons)"
    elif left_out := collectives_left_out(reports):
        yield f"{left_out} collectives are not compared: they are among the longest of some runs only"
    if any(one["kernels"]["window"] != "steps" for one in simulated):
        yield "GPU work is that of whole runs, divided by their steps: the first ones are among them"
