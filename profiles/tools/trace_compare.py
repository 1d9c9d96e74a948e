"""Compares real kernels with simulated ones: `python -m profiles.tools.trace_compare TRACE REPORT [--gpu NAME]
[--json]`.

TRACE is a torch.profiler trace of steps of one rank (record_shapes=True), REPORT the JSON report of a simulated run of
the same job. Prints calls and total time of each family of kernels in one step, real and simulated. A family is what
one model prices. Real times include what kernels lose beside NCCL's and beside other streams; `beside` says how
much of the real time that is. Simulated times are those of a kernel that has the GPU for itself.
"""

from __future__ import annotations

import argparse
import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from profiles.descriptions.gpu import Gpu, load_gpu
from profiles.models.dispatch import estimate
from profiles.signature import parse
from profiles.timings.trace import TracedWork, load, steps_in, works

FAR_OFF = 0.15
"""The relative error from which on a family's total time is far off."""
MATTERS = 0.02
"""The share of the real time from which on its error (or all of its time, where it has no counterpart) matters."""


@dataclass(frozen=True, slots=True)
class Family:
    """Kernels that one model prices, in one step of one rank."""

    name: str
    real_calls: float
    simulated_calls: float
    real_ms: float
    simulated_ms: float
    beside_ms: float
    """The part of `real_ms` with an NCCL kernel or a kernel of another stream on the GPU."""

    @property
    def error(self) -> float | None:
        """The relative error; None: the family was not seen on the GPU."""
        return self.simulated_ms / self.real_ms - 1 if self.real_ms else None

    def is_far_off(self, step_ms: float) -> bool:
        """Returns true if its error is large, for itself and for a step with so much kernel time."""
        missed = abs(self.simulated_ms - self.real_ms)
        return missed > FAR_OFF * self.real_ms and missed > MATTERS * step_ms


@dataclass(slots=True)
class _Sum:
    calls: float = 0.0
    ms: float = 0.0
    beside_ms: float = 0.0


def families(
    gpu: Gpu, real: Sequence[TracedWork], real_steps: int, report: Mapping[str, Any], rank: int = 0
) -> list[Family]:
    """The families, the longest first. Raises KeyError if the report has no kernels section, ValueError if it has not
    the rank.
    """
    measured = _measured(gpu, real, real_steps)
    simulated = _simulated(report, rank)
    found = []
    for name in measured.keys() | simulated.keys():
        one, other = measured.get(name, _Sum()), simulated.get(name, _Sum())
        found.append(Family(name, one.calls, other.calls, one.ms, other.ms, one.beside_ms))
    return sorted(found, key=lambda family: (-max(family.real_ms, family.simulated_ms), family.name))


def _measured(gpu: Gpu, real: Sequence[TracedWork], steps: int) -> dict[str, _Sum]:
    sums: dict[str, _Sum] = defaultdict(_Sum)
    for work in real:
        one = sums[estimate(gpu, parse(work.signature)).model]
        one.calls += 1 / steps
        one.ms += work.for_us / 1e3 / steps
        one.beside_ms += work.for_us * min(work.overlap + work.shared, 1.0) / 1e3 / steps
    return sums


def _simulated(report: Mapping[str, Any], rank: int) -> dict[str, _Sum]:
    document = report["simulated"]
    kernels = document["kernels"]
    launches = next((group["launches"] for group in kernels["ranks"] if rank in group["ranks"]), None)
    if launches is None:
        raise ValueError(f"the report has no kernels of rank {rank}")
    steps = document["step"]["counted"] if kernels["window"] == "steps" else _whole_run(document, rank)
    sums: dict[str, _Sum] = defaultdict(_Sum)
    for signature, count in zip(kernels["signatures"], launches, strict=True):
        one = sums[signature["model"]]
        one.calls += count / steps
        one.ms += signature["mean_ns"] * count / 1e6 / steps
    return sums


def _whole_run(document: Mapping[str, Any], rank: int) -> int:
    """The number of steps of a run whose launches were not counted step by step."""
    steps: int = next(one["steps"] for one in document["ranks"] if one["rank"] == rank)
    return max(steps, 1)


def table(found: Iterable[Family]) -> str:
    """The table in Markdown; families that are far off are marked with an asterisk."""
    found = list(found)
    step_ms = sum(family.real_ms for family in found)
    rows = ["| family | calls real | calls simulated | real ms | beside ms | simulated ms | error |"]
    rows += ["| --- | ---: | ---: | ---: | ---: | ---: | ---: |"]
    rows += [_row(family, "*" if family.is_far_off(step_ms) else "") for family in found]
    sums = [sum(getattr(family, name) for family in found) for name in _SUMMED]
    rows.append(_row(Family("**all**", *sums), ""))
    return "\n".join(rows)


_SUMMED = ("real_calls", "simulated_calls", "real_ms", "simulated_ms", "beside_ms")


def _row(family: Family, mark: str) -> str:
    calls = f"{family.real_calls:.0f} | {family.simulated_calls:.0f}"
    times = f"{family.real_ms:.2f} | {family.beside_ms:.2f} | {family.simulated_ms:.2f}"
    error = "" if family.error is None else f"{family.error:+.1%}"
    return f"| {family.name} | {calls} | {times} | {error}{mark} |"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m profiles.tools.trace_compare", description=__doc__)
    parser.add_argument("trace", type=Path, metavar="TRACE")
    parser.add_argument("report", type=Path, metavar="REPORT")
    parser.add_argument("--gpu", default="h200")
    parser.add_argument("--rank", type=int, default=0, help="whose simulated kernels are compared (default: 0)")
    parser.add_argument("--json", action="store_true", help="print the families as JSON")
    arguments = parser.parse_args()
    events = load(arguments.trace)
    report = json.loads(arguments.report.read_text())
    found = families(load_gpu(arguments.gpu), works(events), steps_in(events), report, arguments.rank)
    print(json.dumps([asdict(family) for family in found], indent=1) if arguments.json else table(found))


if __name__ == "__main__":
    main()
