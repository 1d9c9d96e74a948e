"""Runs jobs folded and with all processes, and compares all that is simulated.

    python tests/e2e/folded_jobs.py --ranks 64,256 --networks rail,fat-tree --jobs hsdp,tensor -o found.jsonl

One line for each job, size and network: the fields of `simulated` that differ, and what both runs took. The exit code
is 1 if any does.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

ROOT = Path(__file__).parents[2]
SCRIPTS = ROOT / "tests" / "e2e" / "scripts"
MEGATRON = ROOT / "examples" / "megatron_tp_pp.py"
SMALL = (
    *("--layers", "4", "--hidden", "512", "--inner", "1024", "--words", "4096"),
    *("--microbatches", "4", "--steps", "3", "--tp", "2", "--pp", "2", "--whole-optimizer"),
)
GPUS = 8
"""The number of GPUs of a server."""
NETWORKS = {
    "rail": 'kind = "rail"\nservers_per_leaf = 2\noversubscription = 2.0\n',
    "leaf-spine": 'kind = "leaf-spine"\nservers_per_leaf = 2\noversubscription = 2.0\n',
    "fat-tree": 'kind = "fat-tree"\nk = 16\n',
}
BASE = "dgx-h200"
MOST_SHOWN = 40


@dataclass(frozen=True)
class Job:
    name: str
    script: Path
    args: tuple[str, ...]
    mesh: str
    """The mesh, with `{n}` in place of how many replicas there are."""
    inner: int
    """The number of ranks of one replica."""

    def mesh_of(self, ranks: int) -> str:
        return self.mesh.format(n=ranks // self.inner)


LAYOUTS = SCRIPTS / "layouts.py"
JOBS = {
    job.name: job
    for job in (
        Job("ddp", LAYOUTS, ("ddp", "2"), "dp={n},tp=2", 2),
        Job("fsdp", SCRIPTS / "uneven_shards.py", (), "auto", 1),
        Job("hsdp", LAYOUTS, ("hsdp", "8"), "dp_replicate={n},dp_shard=8", 8),
        Job("tensor", LAYOUTS, ("tensor", "8"), "dp={n},tp=8", 8),
        Job("pipeline", LAYOUTS, ("pipeline", "4"), "dp={n},pp=4", 4),
        Job("context", SCRIPTS / "context_parallel.py", ("4",), "dp={n},cp=4", 4),
        Job("megatron", MEGATRON, SMALL, "pp=2,dp={n},tp=2", 4),
        Job("interleaved", MEGATRON, (*SMALL, "--virtual", "2"), "pp=2,dp={n},tp=2", 4),
        Job("zero3", SCRIPTS / "frameworks" / "deepspeed_zero3.py", (), "dp={n}", 1),
    )
}


@dataclass(frozen=True)
class Compared:
    job: str
    ranks: int
    network: str
    slow: bool
    failed: str
    """The reason why there is nothing to compare; empty: both runs ended well."""
    differing: tuple[str, ...]
    """Paths of fields, `activity` left out."""
    activity: int
    """Fields of `activity` that differ: see docs/limitations.md."""
    folded_s: float
    whole_s: float
    replicas: str
    """How the folded run simulated them in the end."""

    @property
    def equal(self) -> bool:
        return not self.failed and not self.differing


def differences(one: Any, other: Any, path: str = "") -> Iterator[str]:
    """Yields paths of leaves that are not equal, or that one of both lacks."""
    if isinstance(one, dict) and isinstance(other, dict):
        for key in sorted(one.keys() | other.keys()):
            if key not in one or key not in other:
                yield f"{path}.{key}"
            else:
                yield from differences(one[key], other[key], f"{path}.{key}")
    elif isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        for at, pair in enumerate(zip(one, other, strict=True)):
            yield from differences(*pair, f"{path}[{at}]")
    elif one != other:
        yield path


def compare(
    job: Job, ranks: int, network: str, command: Sequence[str], slow: bool = False, options: Sequence[str] = ()
) -> Compared:
    """Runs the job twice. `command`: of phantora-async."""
    with TemporaryDirectory() as folder:
        cluster = Path(folder) / "cluster.toml"
        cluster.write_text(f'base = "{BASE}"\n[network.fabric]\n{NETWORKS[network]}')
        given = ["-n", str(ranks), "--nproc-per-node", str(GPUS), "--cluster", str(cluster), *options]
        given += ["--fault", "gpu 5 at 0.7x"] if slow else []
        reports, took = [], []
        for which, more in (("whole", []), ("folded", ["--fold", job.mesh_of(ranks)])):
            began = time.monotonic()
            out = Path(folder) / which
            done = subprocess.run(
                [*command, "run", *given, *more, "--run-dir", str(out), str(job.script), *job.args],
                capture_output=True,
                text=True,
                check=False,
            )
            took.append(round(time.monotonic() - began, 1))
            if done.returncode:
                failed = f"{which}: exit code {done.returncode}: {(done.stderr or done.stdout)[-600:]}"
                return Compared(job.name, ranks, network, slow, failed, (), 0, took[-1], took[0], "")
            reports.append(json.loads((out / "report.json").read_text()))
    whole, folded = (report["simulated"] for report in reports)
    activity = len(list(differences(whole.pop("activity"), folded.pop("activity"))))
    found = tuple(differences(whole, folded))
    timelines = reports[1]["folding"]["timelines"]
    replicas = "each" if timelines == ranks else f"shared, {timelines} timelines"
    return Compared(job.name, ranks, network, slow, "", found, activity, took[1], took[0], replicas)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", default=",".join(JOBS))
    parser.add_argument("--ranks", default="16")
    parser.add_argument("--networks", default="rail")
    parser.add_argument("--slow", action="store_true", help="GPU 5 at 0.7 of its speed")
    parser.add_argument("--at-once", type=int, default=1)
    parser.add_argument("-o", "--out", type=Path, help="lines of JSON")
    args = parser.parse_args()
    command = [sys.executable, "-m", "phantora_async"]
    asked = [
        (JOBS[name], int(ranks), network)
        for ranks in args.ranks.split(",")
        for network in args.networks.split(",")
        for name in args.jobs.split(",")
    ]
    equal = True
    with ThreadPoolExecutor(args.at_once) as pool:
        for found in pool.map(lambda one: compare(*one, command, args.slow), asked):
            equal = equal and found.equal
            line = json.dumps(vars(found) | {"differing": found.differing[:MOST_SHOWN], "count": len(found.differing)})
            print(line, flush=True)
            if args.out is not None:
                with args.out.open("a") as file:
                    file.write(f"{line}\n")
    return 0 if equal else 1


if __name__ == "__main__":
    sys.exit(main())
