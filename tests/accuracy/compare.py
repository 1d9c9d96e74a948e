"""Runs measured training jobs in emulation and prints a table of simulated beside real figures.

    python -m tests.accuracy.compare --jobs-script JOBS.py --truth TRUTH.jsonl [--only NAME,...] [-- run options]

The script takes `--jobs NAME --steps N --warm N` and prints one `RESULT {json}` line a job. The truth file holds the
lines that it printed on real GPUs: `world`, `free_running_step_s`, `max_alloc` and `max_reserved` are compared.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True)
class Row:
    job: str
    real: dict[str, Any]
    simulated: dict[str, Any] | None
    wall_s: float
    last_words: str

    def markdown(self) -> str:
        if self.simulated is None:
            return f"| {self.job} | {self.real['world']} | failed: {self.last_words} | | | | | | |"
        step, real_step = self.simulated["free_running_step_s"], self.real["free_running_step_s"]
        cells = [
            self.job,
            str(self.real["world"]),
            f"{real_step * 1e3:.1f}",
            f"{step * 1e3:.1f}",
            percent(step, real_step),
        ]
        for key in ("max_alloc", "max_reserved"):
            cells += [f"{self.simulated[key]:,}", percent(self.simulated[key], self.real[key], digits=3)]
        return f"| {' | '.join(cells)} |"


def percent(value: float, reference: float, digits: int = 1) -> str:
    return f"{(value / reference - 1) * 100:+.{digits}f} %"


def results(text: str) -> Iterator[dict[str, Any]]:
    for line in text.splitlines():
        if line.startswith("RESULT "):
            yield json.loads(line.removeprefix("RESULT "))


def simulate(script: Path, real: dict[str, Any], steps: int, warm: int, options: list[str]) -> Row:
    job, started = real["job"], time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        command = [
            sys.executable,
            "-m",
            "phantora_async",
            "run",
            "-n",
            str(real["world"]),
            "--run-dir",
            f"{folder}/run",
        ]
        command += [*options, str(script), "--jobs", job, "--steps", str(steps), "--warm", str(warm)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    found = next(results(done.stdout), None) if done.returncode == 0 else None
    words = (done.stderr or done.stdout).strip().splitlines()
    return Row(job, real, found, time.monotonic() - started, words[-1] if words else f"exit code {done.returncode}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs-script", type=Path, required=True)
    parser.add_argument("--truth", type=Path, required=True)
    parser.add_argument("--only", default="", help="comma-separated job names")
    parser.add_argument("--skip", default="", help="comma-separated job names")
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--warm", type=int, default=2)
    parser.add_argument("options", nargs="*", help="options of `phantora-async run`, after --")
    args = parser.parse_args()
    real = [json.loads(line) for line in args.truth.read_text().splitlines()]
    only, skip = set(filter(None, args.only.split(","))), set(args.skip.split(","))
    chosen = [row for row in real if row["job"] not in skip and (not only or row["job"] in only)]
    print("| job | GPUs | real step, ms | simulated | error | max_alloc | error | max_reserved | error |")
    print("|---|---|---|---|---|---|---|---|---|")
    failed = 0
    for row in (simulate(args.jobs_script, one, args.steps, args.warm, args.options) for one in chosen):
        failed += row.simulated is None
        print(row.markdown(), flush=True)
        print(f"{row.job}: {row.wall_s:.0f} s", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
