"""Predictions of NCCL between servers beside published measurements.

    python laboratory/programs/published_nccl.py [--rows] [--half fit|kept] [--one-server] [--by FIELD ...]

It reads laboratory/rows/published-nccl.jsonl, one run a line: operation, servers, GPUs, NICs, NCCL's version and
environment where the publisher tells them, source, and pairs of bytes and microseconds. Sizes are counted as nccl-tests
counts them. The times are those of calls out of place, or in place where these are more than 10 % faster. Runs of a
source with ``kept_out`` are for judging only: no parameter is fitted to them. A source is kept out if the first byte of
the SHA-256 of "166" and its name is odd; 166 is the first number that keeps out about half of the points.

Each point is planned with the product's model for the cluster that the line names, with the line's NICs, and its flows
run alone on that network. A process that
calls NCCL for several GPUs (``gpus_per_process``) is a host's matter: calls below 1 MiB then take what it takes to
launch their kernels one after the other, and are not judged.
"""

from __future__ import annotations

import argparse
import copy
import json
import math
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from statistics import median
from typing import Any

import netsim
from netsim.collectives import load_params, plan, settings
from profiles.descriptions.cluster import load_cluster

ROWS = Path(__file__).parent.parent / "rows" / "published-nccl.jsonl"
MIB = 1 << 20


@dataclass(frozen=True)
class Point:
    """One published time and its prediction, both in us."""

    run: dict[str, Any]
    nbytes: int
    us: float
    predicted_us: float
    way: str
    """Algorithm and protocol of the prediction."""

    @property
    def error(self) -> float:
        return self.predicted_us / self.us - 1

    @property
    def size_class(self) -> str:
        limits = ((64 << 10, "below 64 KiB"), (MIB, "64 KiB to 1 MiB"), (16 * MIB, "1 to 16 MiB"))
        return next(
            (name for limit, name in limits if self.nbytes < limit),
            "from 256 MiB" if self.nbytes >= 256 * MIB else "16 to 256 MiB",
        )


@cache
def network(
    cluster: str,
    gpus: int,
    nics: int,
    nic_gbps: float,
    domains: int,
    env: tuple[tuple[str, str], ...],
    cpu: str = "",
    version: tuple[int, int] | None = None,
):
    """The described cluster with a run's NICs, ``domains`` of what NVLink joins, and the settings of an environment."""
    described = load_cluster(cluster)
    spec = copy.deepcopy(described.network)
    trays = described.servers_per_nvlink_domain
    in_server = described.gpus_per_server
    # A server's description has at most one card for each of its GPUs: several cards of one GPU count as one.
    cards = min(nics, in_server)
    spec["server"] |= {"nics": cards * trays, "nic_gbps": nic_gbps * nics / cards} | ({"cpu": cpu} if cpu else {})
    given = settings.read(described.environment_of(domains) | dict(env), cards * trays).settings
    if version:
        given = replace(given, version=version)
    topology = netsim.build(spec, servers=domains, rules=given.traffic_rules(cards * trays))
    return topology, load_params(described.nccl), given


def members(run: dict[str, Any], gpus_of_domain: int) -> tuple[int, ...]:
    """Returns the ranks' endpoints: the first GPUs of each NVLink domain, evenly spread over servers with more GPUs
    than ranks.
    """
    total = run["servers"] * run["gpus_per_server"]
    domains = run.get("nvlink_domains", run["servers"])
    used = total // domains
    stride = gpus_of_domain // used if domains == run["servers"] else 1
    return tuple(d * gpus_of_domain + i * stride for d in range(domains) for i in range(used))


def version(run: dict[str, Any]) -> tuple[int, int] | None:
    """Returns the run's version of NCCL, as far as the publisher tells it."""
    parts = [int(part) for part in run.get("nccl", "").split(".") if part]
    return (parts[0], parts[1]) if len(parts) > 1 else None


def predict(run: dict[str, Any], nbytes: int) -> tuple[float, str]:
    """Returns time in us and the way NCCL takes, of one call of a run."""
    env = tuple(sorted(run.get("env", {}).items()))
    domains = run.get("nvlink_domains", run["servers"])
    topology, params, given = network(
        run["cluster"],
        run["gpus_per_server"],
        run["nics_per_server"],
        run["nic_gbps"],
        domains,
        env,
        run.get("cpu", ""),
        version(run),
    )
    ranks = members(run, topology.server.gpus)
    op, ends, exchange = run["op"], ranks, False
    if op == "sendrecv_ring":
        # Every rank sends to the next: the slowest pair is the one between servers.
        border = len(ranks) // domains if domains > 1 else 1
        op, ends, exchange = "send_recv", (ranks[border - 1], ranks[border]), True
    made = plan(op, nbytes, ends, topology, params, ranks=len(ranks), exchange=exchange, settings=given)
    net = netsim.Network(topology)
    for i, group in enumerate(made.groups):
        net.add(group, made.latency_ns, key=(i,))
    end_ns = made.latency_ns
    while (completion := net.next_completion()) is not None:
        end_ns = completion[0]
        net.advance(end_ns)
    return end_ns / 1000, f"{made.algorithm} {made.protocol}"


def read(path: Path = ROWS) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def points(runs: Iterable[dict[str, Any]]) -> list[Point]:
    return [Point(run, nbytes, us, *predict(run, nbytes)) for run in runs for nbytes, us in run["us_by_bytes"]]


def spread(errors: Sequence[float]) -> tuple[float, float]:
    """Returns median and 90th percentile of absolute errors."""
    ordered = sorted(abs(e) for e in errors)
    return median(ordered), ordered[max(0, math.ceil(0.9 * len(ordered)) - 1)]


GROUPINGS: dict[str, Callable[[Point], str]] = {
    "operation": lambda p: p.run["op"],
    "size": lambda p: p.size_class,
    "servers": lambda p: f"{p.run['servers']:4d}",
    "process": lambda p: f"{p.run.get('gpus_per_process', 1)} GPUs of a process",
    "gpu": lambda p: p.run["gpu"].split()[0],
    "transport": lambda p: p.run["transport"],
    "way": lambda p: p.way,
    "source": lambda p: f"{p.run['source'][:60]} {p.run['servers']} {p.run['op']}",
}
DEFAULT_GROUPINGS = ("operation", "size", "servers", "gpu", "transport")


def table(found: Sequence[Point], groupings: Sequence[str]) -> str:
    lines = []

    def line(name: str, of: Sequence[Point]) -> None:
        cells = []
        for kept in (False, True):
            errors = [p.error for p in of if p.run["kept_out"] == kept]
            middle, high = spread(errors) if errors else (math.nan, math.nan)
            signed = median(errors) if errors else math.nan
            cells.append(f"{len(errors):5d}{middle:8.1%}{high:8.1%}{signed:+8.1%}" if errors else f"{0:5d}{'':24}")
        lines.append(f"{name[:72]:72}{cells[0]}  |{cells[1]}")

    lines.append(f"{'median, 90th percentile, median with sign':72}{'in fit':>29}  |{'kept out':>29}")
    line("all", found)
    for grouping in groupings:
        lines.append(f"\n{grouping}")
        names = sorted({GROUPINGS[grouping](p) for p in found})
        for name in names:
            line("  " + name, [p for p in found if GROUPINGS[grouping](p) == name])
    return "\n".join(lines)


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rows", action="store_true", help="print every point")
    parser.add_argument("--one-server", action="store_true", help="the runs on one server, in place of all others")
    parser.add_argument("--half", choices=("fit", "kept"))
    parser.add_argument("--by", nargs="+", choices=sorted(GROUPINGS), default=DEFAULT_GROUPINGS)
    options = parser.parse_args(argv)
    runs = [run for run in read() if options.half is None or run["kept_out"] == (options.half == "kept")]
    runs = [run for run in runs if (run["servers"] == 1) == options.one_server]
    found = [p for p in points(runs) if p.nbytes >= MIB or p.run.get("gpus_per_process", 1) == 1]
    if options.rows:
        for p in found:
            print(
                f"{p.run['source'][-40:]:40} {p.run['servers']:4d} {p.run['op']:14} {p.nbytes:12d} {p.us:10.1f} "
                f"{p.predicted_us:10.1f} {p.error:+7.1%} {p.way}"
            )
    print(table(found, options.by))
    return 0


if __name__ == "__main__":
    sys.exit(main())
