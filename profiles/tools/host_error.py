"""How far host descriptions are from real jobs: `python -m profiles.tools.host_error JOBS.jsonl`.

A line of the file is a job on a machine: `job`, `host` (the description of that machine), `run`, `counts` (units of
each kind of host work in a step, as emu.hostbench counts them) and `host_s` (seconds of host time of measured steps).
Prints a Markdown table of model beside measurement, and the mean errors.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from pathlib import Path
from statistics import mean, median

from profiles.host import HostModel, load_host


def host_ns(host: HostModel, counts: Mapping[str, float]) -> float:
    """What the description says a step takes of the host."""
    return sum(host.cost_ns.get(kind, 0.0) * n for kind, n in counts.items())


def table(lines: list[str]) -> str:
    """Markdown."""
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


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m profiles.tools.host_error", description=__doc__)
    parser.add_argument("jobs", type=Path, metavar="JOBS.jsonl")
    print(table(parser.parse_args().jobs.read_text().splitlines()))


if __name__ == "__main__":
    main()
