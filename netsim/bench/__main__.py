"""Benchmark: cases with exact answers, run in order and late.

    python -m netsim.bench --cases DIR [--only NAME,...] [--late] [--json] [--refc PATH]

In order, flows are handed over as virtual time reaches their starts; late, at their ``submit_ns``, which is after
the start for one flow in ten. History that no later flow can touch is committed as time goes on. CPU seconds cover
everything between the parsed case and all completion times, and are the best of ``--repeat`` runs.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np

from netsim.bench import cases
from netsim.bench.cases import Case
from netsim.errors import NetsimError
from netsim.simulation.network import Network
from netsim.units import TICKS_PER_NS


@dataclass(frozen=True, slots=True)
class Result:
    """One run of one case."""

    case: str
    order: str
    flows: int
    worst_ns: float
    cpu_s: float
    peak_mb: float
    held_mb: float
    events: int
    rollbacks: int
    redone: int
    refc_s: float | None = None
    ratio: float | None = None


def run(case: Case, late: bool, repeat: int) -> Result:
    """The case's deviation, CPU seconds (best of ``repeat``) and counters."""
    table = Network(case.topology).table(case.paths, case.nbytes, case.start_ns)
    submit = np.array(case.submit_ns if late and case.submit_ns else case.start_ns, np.int64)
    best = float("inf")
    for _ in range(repeat):
        began = time.process_time()
        net = Network(case.topology)
        done = net.play(table, submit)
        best = min(best, time.process_time() - began)
    counters = net.counters()
    worst = float(np.max(np.abs(done / TICKS_PER_NS - np.array(case.completion_ns))))
    return Result(
        case=case.name,
        order="late" if late else "in order",
        flows=len(done),
        worst_ns=worst,
        cpu_s=best,
        peak_mb=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        held_mb=counters["bytes"] / 1e6,
        events=counters["events"],
        rollbacks=counters["rollbacks"],
        redone=counters["redone"],
    )


def refc_seconds(refc: Path, case: Case, repeat: int) -> float:
    """CPU seconds of the reference binary on this case, best of ``repeat``."""
    spec = case.spec["topology"]
    kind = {"star": "star", "leafspine": "ls", "leafspine_ecmp": "lse"}[spec["kind"]]
    lines = [f"{kind} {spec['hosts']} {spec.get('hosts_per_leaf') or 0} {spec.get('oversubscription') or 1}"]
    lines.append(str(len(case.topology.links)))
    lines += [f"{link.name} {link.gbps!r}" for link in case.topology.links]
    lines.append(str(len(case.paths)))
    flows = case.spec["flows"]
    rows = zip(flows["src"], flows["dst"], case.nbytes, case.start_ns, case.paths, strict=True)
    lines += [f"{s} {d} {b} {at} {at} {len(p)} {' '.join(map(str, p))}" for s, d, b, at, p in rows]
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
        file.write("\n".join(lines) + "\n")
        file.flush()
        best = float("inf")
        for _ in range(repeat):
            command = [str(refc), file.name]
            done = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, check=True, text=True)
            best = min(best, float(json.loads(done.stderr.splitlines()[-1])["cpu_s"]))
    return best


HEADER = (
    f"{'case':18} {'order':8} {'flows':>6} {'worst ns':>9} {'CPU s':>8} {'refc s':>9} {'ratio':>7} "
    f"{'held MB':>8} {'peak MB':>7} {'events':>7} {'rolls':>6} {'redone':>8}"
)


def _line(result: Result) -> str:
    ratio = "" if result.ratio is None else f"{result.refc_s:9.4f} {result.ratio:7.3f}"
    return (
        f"{result.case:18} {result.order:8} {result.flows:6} {result.worst_ns:9.5f} {result.cpu_s:8.4f} {ratio:17} "
        f"{result.held_mb:8.2f} {result.peak_mb:7.1f} {result.events:7} {result.rollbacks:6} {result.redone:8}"
    )


def _parser() -> argparse.ArgumentParser:
    description = "Speed and exactness on cases with known answers."
    parser = argparse.ArgumentParser(prog="python -m netsim.bench", description=description)
    parser.add_argument("--cases", type=Path, required=True, metavar="DIR", help="folder of NAME.json.gz cases")
    parser.add_argument("--only", default="", metavar="NAME,...", help="these cases only")
    parser.add_argument("--late", action="store_true", help="only with late arrivals")
    parser.add_argument("--json", action="store_true", help="one JSON object a line")
    parser.add_argument("--refc", type=Path, metavar="PATH", help="reference binary to run in the same session")
    parser.add_argument("--repeat", type=int, default=3, metavar="N", help="runs of each, best taken (default 3)")
    parser.add_argument("--tolerance", type=float, default=0.01, metavar="NS", help="deviation allowed (default 0.01)")
    return parser


def _results(path: Path, args: argparse.Namespace) -> Iterator[Result]:
    case = cases.read(path)
    refc = refc_seconds(args.refc, case, args.repeat) if args.refc else None
    for late in ([] if args.late else [False]) + ([True] if case.submit_ns else []):
        result = run(case, late, args.repeat)
        yield replace(result, refc_s=refc, ratio=result.cpu_s / refc if refc else None)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the benchmark; exit status 1 if an answer is off by more than ``--tolerance`` ns."""
    parser = _parser()
    args = parser.parse_args(argv)
    only = frozenset(name for name in args.only.split(",") if name)
    paths = list(cases.find(args.cases, only))
    if not paths:
        parser.error(f"no cases in {args.cases}" + (f" named {args.only}" if only else ""))
    if not args.json:
        print(HEADER)
    failed = False
    for path in paths:
        try:
            for result in _results(path, args):
                failed |= not result.worst_ns <= args.tolerance
                print(json.dumps(asdict(result)) if args.json else _line(result), flush=True)
        except (NetsimError, OSError, subprocess.CalledProcessError) as error:
            print(f"{path.name}: {error}", file=sys.stderr)
            failed = True
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main())
