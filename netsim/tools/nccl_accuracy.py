"""The planner against measured collectives.

    python -m netsim.tools.nccl_accuracy MEASURED.jsonl [--generation hopper]

Each line of the file is one measurement: op, world, bytes, us_median. A measurement by events around single calls
cannot be shorter than the host needs per call. This *floor* belongs to the host, not to the network: it is taken from
the small messages of the same operation and world, and what is compared is the larger of floor and plan.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median, quantiles

import numpy as np

from netsim.collectives import planner, tuner
from netsim.collectives.params import Params, load_params
from netsim.simulation.network import Network
from netsim.topology import Topology, build

SMALL = 64 << 10
LARGE = 8 << 20
FLOOR_UP_TO = 4 << 20
CLEAR = 1.15
"""A measurement this much above the floor is held to be the network's time."""


@dataclass(frozen=True, slots=True)
class Measurement:
    """One line: ``us`` is the median."""

    op: str
    world: int
    nbytes: int
    us: float


def read(path: Path) -> list[Measurement]:
    """The measurements of a file."""
    rows = map(json.loads, path.read_text(encoding="utf-8").splitlines())
    return [Measurement(row["op"], row["world"], row["bytes"], row["us_median"]) for row in rows]


def server(gpus: int) -> Topology:
    """A Hopper NVSwitch server as measured: NVLink multicast off."""
    return build({"server": {"kind": "nvswitch", "gpus": gpus, "gpu_gbps": 3200.0, "nvls": False}})


def planned_us(row: Measurement, topology: Topology, params: Params) -> float:
    """Time that the plan takes on an otherwise idle network."""
    members = range(row.world)
    if row.op in ("send_0_1", "sendrecv_ring"):
        both = row.op == "sendrecv_ring"
        pairs = [(i, (i + 1) % row.world) for i in members] if both else [(0, 1)]
        plans = [
            planner.plan("send_recv", row.nbytes, pair, topology, params, ranks=row.world, both_ways=both)
            for pair in pairs
        ]
    else:
        plans = [planner.plan(row.op, row.nbytes, list(members), topology, params)]
    net = Network(topology)
    last = max(plan.latency_ns for plan in plans)
    for i, plan in enumerate(plans):
        for j, group in enumerate(plan.groups):
            net.add(group, plan.latency_ns, (i, j))
    for at_ns, _ in net.advance(1 << 45):
        last = max(last, at_ns)
    return last / 1000


def floors(rows: Iterable[Measurement]) -> dict[tuple[str, int], float]:
    """The host's time per call, by operation and world."""
    small: dict[tuple[str, int], list[float]] = {}
    for row in rows:
        if row.nbytes <= FLOOR_UP_TO:
            small.setdefault((row.op, row.world), []).append(row.us)
    # The lower quartile: a host that is disturbed now and then is slower, never faster.
    return {key: quantiles(values, n=4)[0] for key, values in small.items()}


def fit(rows: Sequence[Measurement], params: Params, floor: dict[tuple[str, int], float]) -> Params:
    """Ramp and turn time of the ring collectives by least squares of the relative error; all else stays."""
    ramp, turn = dict(params.simple.ramp_us), dict(params.simple.turn_us_per_mb)
    for op in tuner.REDUCTIONS:
        left, right = [], []
        for row in rows:
            if row.op != op or row.nbytes < LARGE or row.us < CLEAR * floor[op, row.world]:
                continue
            steps = row.world - 1 if op != "all_reduce" else 2 * (row.world - 1)
            nccl_us = params.base_us["ring"][2] + steps * params.nvlink_us["ring"][2]
            carried = tuner.wire_bytes(op, row.nbytes, row.world)
            moving_us = carried / (1000 * params.gpu_gbs * params.simple.wire_efficiency)
            turns = row.nbytes / row.world / 1e6 if params.simple.turn_us_per_mb[op] else 0.0
            left.append([1 / row.us, turns / row.us])
            right.append((row.us - nccl_us - moving_us) / row.us)
        if left:
            found = np.linalg.lstsq(np.array(left), np.array(right), rcond=None)[0]
            ramp[op], turn[op] = float(found[0]), float(found[1])
    return replace(params, simple=replace(params.simple, ramp_us=ramp, turn_us_per_mb=turn))


def compare(
    rows: Sequence[Measurement], params: Params, floor: dict[tuple[str, int], float]
) -> list[tuple[Measurement, float]]:
    """Each measurement with its prediction in us."""
    topologies = {world: server(world) for world in {row.world for row in rows}}
    return [(row, max(floor[row.op, row.world], planned_us(row, topologies[row.world], params))) for row in rows]


def summary(pairs: Sequence[tuple[Measurement, float]]) -> str:
    """Median and worst error; in per cent, for small messages in us."""
    if not pairs:
        return f"{'-':>14}"
    if pairs[0][0].nbytes < SMALL:
        wrong = [abs(guess - row.us) for row, guess in pairs]
        return f"{median(wrong):5.1f} {max(wrong):6.1f}us"
    wrong = [abs(guess / row.us - 1) * 100 for row, guess in pairs]
    return f"{median(wrong):5.1f} {max(wrong):6.1f}% "


CLASSES = (("< 64 KiB", 0, SMALL), ("64 KiB - 8 MiB", SMALL, LARGE), (">= 8 MiB", LARGE, 1 << 60))


def table(title: str, pairs: Sequence[tuple[Measurement, float]]) -> str:
    """Errors by operation, world and size class: median and worst."""
    lines = [f"{title:24}" + "".join(f"{name:>18}" for name, _, _ in CLASSES)]
    for op, world in sorted({(row.op, row.world) for row, _ in pairs}):
        cells = []
        for _, low, high in CLASSES:
            cells.append(
                summary([p for p in pairs if (p[0].op, p[0].world) == (op, world) and low <= p[0].nbytes < high])
            )
        lines.append(f"{op:16} {world:7}" + "".join(f"{cell:>18}" for cell in cells))
    totals = [summary([p for p in pairs if low <= p[0].nbytes < high]) for _, low, high in CLASSES]
    lines.append(f"{'all':24}" + "".join(f"{cell:>18}" for cell in totals))
    return "\n".join(lines)


def main(argv: Sequence[str] | None = None) -> int:
    """Print how the parameters fit, and how a fit on one world predicts the other."""
    parser = argparse.ArgumentParser(prog="python -m netsim.tools.nccl_accuracy")
    parser.add_argument("measured", type=Path)
    parser.add_argument("--generation", default="hopper")
    parser.add_argument("--rows", action="store_true", help="print every measurement of 64 KiB and more")
    args = parser.parse_args(argv)
    rows, params = read(args.measured), load_params(args.generation)
    floor = floors(rows)
    worlds = sorted({row.world for row in rows})
    out = [table("as shipped", compare(rows, params, floor))]
    if args.rows:
        for row, guess in compare(rows, params, floor):
            if row.nbytes >= SMALL:
                out.append(
                    f"{row.op:16} {row.world} {row.nbytes:11} {row.us:9.1f} {guess:9.1f} {guess / row.us - 1:+7.1%}"
                )
    for world in worlds:
        fitted = fit([row for row in rows if row.world == world], params, floor)
        others = [row for row in rows if row.world != world]
        out.append(table(f"fitted on {world}, predicts", compare(others, fitted, floor)))
        out.append(f"ramp_us {fitted.simple.ramp_us}\nturn_us_per_mb {fitted.simple.turn_us_per_mb}")
    both = fit(rows, params, floor)
    out.append(f"fitted on all: ramp_us {both.simple.ramp_us}\nturn_us_per_mb {both.simple.turn_us_per_mb}")
    sys.stdout.write("\n\n".join(out) + "\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
