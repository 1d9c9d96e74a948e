"""Measures how far host descriptions are from real jobs: `python -m laboratory.fits.host_error JOBS.jsonl [--machines
FILE]`.

A line of the file is a job on a machine: `job`, `host` (the description of that machine), `run`, `counts` (units of
each kind of host work in a step, as emu.hostbench counts them) and `host_s` (seconds of host time of measured steps).
Prints a Markdown table of model beside measurement, and the mean errors.

`--machines`: a line is a kind of machine: `machine`, and the `median` of its jobs' real over modelled host time. Prints
the range in which another machine is expected nine times in ten, from all machines and, for each machine, from all
others: what belongs into a description's [spread], and whether it would have held.

`--ranks`: files of emu.hostbench's times (`part` "detached", `ns` by program, two lines a `measurement`: two ranks at
once). Prints by how much ranks differ: `ranks` of a description's [spread].
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from math import exp, log, sqrt
from pathlib import Path
from statistics import mean, median, stdev

from profiles.host import HostModel, load_host

STUDENT = {
    2: 2.920,
    3: 2.353,
    4: 2.132,
    5: 2.015,
    6: 1.943,
    7: 1.895,
    8: 1.860,
    9: 1.833,
    10: 1.812,
    11: 1.796,
    12: 1.782,
    13: 1.771,
    14: 1.761,
    15: 1.753,
    16: 1.746,
    17: 1.740,
    18: 1.734,
    19: 1.729,
    20: 1.725,
    21: 1.721,
    22: 1.717,
    23: 1.714,
    24: 1.711,
    25: 1.708,
    26: 1.706,
}
"""The 95 % quantiles of Student's distribution, by degrees of freedom."""


def host_ns(host: HostModel, counts: Mapping[str, float]) -> float:
    """The host time of a step in ns that the description predicts."""
    return sum(host.cost_ns.get(kind, 0.0) * n for kind, n in counts.items())


def table(lines: list[str]) -> str:
    """The table of jobs in Markdown."""
    rows = ["| host | job | run | model ms | measured ms (fastest to slowest step) | error |"]
    rows += ["| --- | --- | --- | ---: | --- | ---: |"]
    errors: list[float] = []
    for line in lines:
        job = json.loads(line)
        model_ms = host_ns(load_host(job["host"]), job["counts"]) / 1e6
        steps_ms = [1e3 * seconds for seconds in job["host_s"]]
        errors.append(model_ms / median(steps_ms) - 1)
        spread = f"{median(steps_ms):.1f} ({min(steps_ms):.1f} to {max(steps_ms):.1f})"
        rows.append(f"| {job['host']} | {job['job']} | {job['run']} | {model_ms:.1f} | {spread} | {errors[-1]:+.0%} |")
    rows += ["", f"Mean error {mean(errors):+.0%}, mean absolute error {mean(map(abs, errors)):.0%}."]
    return "\n".join(rows)


def expected(medians: Sequence[float]) -> tuple[float, float]:
    """The range in which the median of another machine lies with a probability of 90 %, if logarithms are normal."""
    logarithms = [log(one) for one in medians]
    n = len(logarithms)
    half = STUDENT[n - 1] * stdev(logarithms) * sqrt(1 + 1 / n)
    return exp(mean(logarithms) - half), exp(mean(logarithms) + half)


def machines(lines: Sequence[str]) -> str:
    """The table of machines in Markdown."""
    found = {one["machine"]: float(one["median"]) for one in map(json.loads, lines)}
    rows = ["| machine | median | expected from the others |", "| --- | ---: | ---: |"]
    held = 0
    for name, median_ratio in found.items():
        fast, slow = expected([other for one, other in found.items() if one != name])
        held += fast <= median_ratio <= slow
        rows.append(f"| {name} | {median_ratio:.2f} | {fast:.2f} to {slow:.2f} |")
    fast, slow = expected(list(found.values()))
    return "\n".join([*rows, "", f"{held} of {len(found)} held. Expected from all: {fast:.2f} to {slow:.2f}."])


def rank_spread(lines: Sequence[str]) -> float:
    """The standard deviation of one rank's times: that of the ratio of two at once, over the root of two."""
    runs = [one for one in map(json.loads, lines) if one["part"] == "detached"]
    squares: list[float] = []
    for first, second in zip(runs[::2], runs[1::2], strict=True):
        if first.get("measurement") != second.get("measurement"):
            raise ValueError(f"measurement {first.get('measurement')}: two ranks were expected")
        squares += [log(median(ns) / median(second["ns"][name])) ** 2 for name, ns in first["ns"].items()]
    return sqrt(mean(squares) / 2)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m laboratory.fits.host_error", description=__doc__)
    parser.add_argument("jobs", type=Path, metavar="JOBS.jsonl")
    parser.add_argument("--machines", type=Path, metavar="FILE")
    parser.add_argument("--ranks", type=Path, metavar="FILE", action="extend", nargs="+", default=[])
    given = parser.parse_args()
    print(table(given.jobs.read_text().splitlines()))
    if given.machines:
        print("\n" + machines(given.machines.read_text().splitlines()))
    if given.ranks:
        lines = [line for path in given.ranks for line in path.read_text().splitlines()]
        print(f"\nRanks of one machine differ by {rank_spread(lines):.3f}.")


if __name__ == "__main__":
    main()
