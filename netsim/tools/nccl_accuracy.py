"""Compares plans of collectives with measured kernels: errors, and the fit of the parameters.

    python -m netsim.tools.nccl_accuracy MEASURED.jsonl [--generation hopper] [--rows] [--fit] [--leave-out]

Each line of the file is one measurement: op, world, bytes, us (median), env (NCCL's variables), machine. The time is
that between two CUDA events around a call, with the host far ahead. Such an interval is longer than the kernel by the
work of the events (``--events-us``).
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from numpy.typing import NDArray

from netsim.collectives import Params, load_params, plan, settings, tuner
from netsim.collectives.settings import NcclSettings
from netsim.topology import Topology, build

SMALL = 64 << 10
LARGE = 8 << 20
EVENTS_US = 0.75
"""The us by which a kernel that follows another in its stream is shorter than the interval between events around it."""
OPS = (*tuner.REDUCTIONS, "all_to_all", "sendrecv_ring", "recv")
"""The measured operations that are planned."""


@dataclass(frozen=True, slots=True)
class Measurement:
    """One line of the file. ``us``: without the time of the events."""

    op: str
    world: int
    nbytes: int
    us: float
    env: tuple[tuple[str, str], ...]
    machine: int

    @property
    def group(self) -> str:
        """The group under which it is listed."""
        return " ".join(f"{name}={value}" for name, value in self.env) or f"machine {self.machine}"


def read(path: Path, events_us: float = EVENTS_US) -> list[Measurement]:
    """The measurements of a file that have a plan."""
    rows = map(json.loads, path.read_text(encoding="utf-8").splitlines())
    return [
        Measurement(r["op"], r["world"], r["bytes"], r["us"] - events_us, tuple(sorted(r["env"].items())), r["machine"])
        for r in rows
        if r["op"] in OPS
    ]


class Planned:
    """Computes the times of plans on servers like the measured ones: Hopper, NVLink multicast off."""

    def __init__(self, params: Params) -> None:
        self._params = params
        self._topologies: dict[tuple[int, NcclSettings], Topology] = {}
        self._settings: dict[tuple[tuple[str, str], ...], NcclSettings] = {}

    def us(self, row: Measurement) -> float:
        """The time in us of the plan on an otherwise idle network: no group is held up by another."""
        given = self._settings.get(row.env)
        if given is None:
            given = self._settings[row.env] = settings.read(dict(row.env)).settings
        topology = self._topologies.get((row.world, given))
        if topology is None:
            spec = {"server": {"kind": "nvswitch", "gpus": row.world, "gpu_gbps": 3200.0}}
            topology = self._topologies[row.world, given] = build(spec, rules=given.traffic_rules(0))
        op, members = (row.op, tuple(range(row.world)))
        if op in ("recv", "sendrecv_ring"):
            op, members = "send_recv", (0, 1)
        made = plan(
            op,
            row.nbytes,
            members,
            topology,
            self._params,
            ranks=row.world,
            exchange=row.op == "sendrecv_ring",
            settings=given,
        )
        moving = [group.nbytes * 8 / group.cap_gbps for group in made.groups if group.cap_gbps]
        return (made.latency_ns + max(moving, default=0.0)) / 1000


# -- fitting

ParameterPath = tuple[str | int, ...]


def free_parameters() -> list[ParameterPath]:
    """The measured parameters, as paths of fields into ``Params``."""
    kernel: list[ParameterPath] = [("kernel", "start_us", op, p) for op in tuner.REDUCTIONS for p in range(3)]
    for name in ("step_us", "send_gbs", "relay_gbs", "receive_gbs"):
        kernel += [("kernel", name, p) for p in range(3)]
    kernel += [("kernel", name) for name in ("slice_us", "iteration_us", "overlap_mb", "many_blocks_us")]
    p2p: list[ParameterPath] = [
        ("p2p", name) for name in ("first_gbs", "receive_gbs", "chunk_us", "second_iteration_us")
    ]
    for way in ("one_way", "exchange"):
        p2p += [("p2p", way, name) for name in ("ll_start_us", "simple_start_us", "ll_gbs", "simple_gbs")]
    return [*kernel, *p2p, ("p2p", "exchange", "port_efficiency")]


def get(value: Any, path: ParameterPath) -> float:
    """The parameter at a path."""
    step: Any
    for step in path:
        value = value[step] if isinstance(value, dict | tuple) else getattr(value, step)
    return float(value)


def put(value: Any, path: ParameterPath, number: float) -> Any:
    """A copy of the value with another number at this path."""
    if not path:
        return number
    step: Any = path[0]
    rest = path[1:]
    if isinstance(value, dict):
        return {**value, step: put(value[step], rest, number)}
    if isinstance(value, tuple):
        return (*value[:step], put(value[step], rest, number), *value[step + 1 :])
    return replace(value, **{step: put(getattr(value, step), rest, number)})


def weight(row: Measurement) -> float:
    """The weight of a measurement. NCCL's own choices count most; protocols forced where NCCL would not use them count
    least.
    """
    if "NCCL_P2P_DISABLE" in dict(row.env) or "NCCL_ALGO" in dict(row.env):
        return 0.0
    protocol = dict(row.env).get("NCCL_PROTO", "")
    if (protocol == "LL" and row.nbytes > 4 << 20) or (protocol in ("LL128", "Simple") and row.nbytes < SMALL):
        return 0.15
    return 1.5 if row.machine == 1 else 0.5 if row.env else 1.0


def fit(rows: Sequence[Measurement], params: Params, rounds: int = 12) -> Params:
    """Fits the parameters: least squares of the relative errors, with outliers damped: Levenberg-Marquardt on the
    logarithms.
    """
    rows = [row for row in rows if weight(row)]
    paths = free_parameters()
    weights = np.array([weight(row) for row in rows])
    measured = np.array([row.us for row in rows])

    def made(logs: NDArray[np.float64]) -> Params:
        result = params
        for path, value in zip(paths, np.exp(logs), strict=True):
            result = put(result, path, float(value))
        return result

    def errors(logs: NDArray[np.float64]) -> NDArray[np.float64]:
        planned = Planned(made(logs))
        return np.asarray(weights * (np.array([planned.us(row) for row in rows]) / measured - 1), np.float64)

    return made(_least_squares(errors, np.log([get(params, path) for path in paths]), rounds))


def _least_squares(
    errors: Callable[[NDArray[np.float64]], NDArray[np.float64]], at: NDArray[np.float64], rounds: int
) -> NDArray[np.float64]:
    damping, scale, small = 1e-2, 0.04, 1e-3
    now = errors(at)

    def cost(e: NDArray[np.float64]) -> float:
        return float(np.sum(np.sqrt(1 + (e / scale) ** 2) - 1))

    for _ in range(rounds):
        slopes = np.stack([(errors(at + small * unit) - now) / small for unit in np.eye(len(at))], axis=1)
        damped = 1 / np.sqrt(1 + (now / scale) ** 2)
        normal, right = slopes.T @ (slopes * damped[:, None]), -slopes.T @ (now * damped)
        while damping < 1e6:
            step = np.linalg.solve(normal + damping * (np.diag(np.diag(normal)) + 1e-6 * np.eye(len(at))), right)
            there = at + np.clip(step, -0.5, 0.5)
            then = errors(there)
            if cost(then) < cost(now):
                at, now, damping = there, then, damping / 5
                break
            damping *= 5
    return at


def toml(params: Params) -> str:
    """The fitted parameters as TOML, one a line."""
    return "\n".join(f"{'.'.join(map(str, path))} = {get(params, path):.3g}" for path in free_parameters())


# -- tables

CLASSES = (("< 64 KiB", 0, SMALL), ("64 KiB - 8 MiB", SMALL, LARGE), (">= 8 MiB", LARGE, 1 << 60))
Pair = tuple[Measurement, float]


def compare(rows: Sequence[Measurement], params: Params) -> list[Pair]:
    """Each measurement with its plan's time in us."""
    planned = Planned(params)
    return [(row, planned.us(row)) for row in rows]


def summary(pairs: Sequence[Pair]) -> str:
    """The median and worst error; in per cent, for small messages in us."""
    if not pairs:
        return f"{'-':>14}"
    if pairs[0][0].nbytes < SMALL:
        wrong = [abs(guess - row.us) for row, guess in pairs]
        return f"{median(wrong):5.1f} {max(wrong):6.1f}us"
    wrong = [abs(guess / row.us - 1) * 100 for row, guess in pairs]
    return f"{median(wrong):5.1f} {max(wrong):6.1f}% "


def table(title: str, pairs: Sequence[Pair], key: Callable[[Measurement], str]) -> str:
    """The errors by ``key`` and size class: median and worst."""
    lines = [f"{title:38}" + "".join(f"{name:>18}" for name, _, _ in CLASSES)]
    by_key: dict[str, list[Pair]] = {}
    for pair in pairs:
        by_key.setdefault(key(pair[0]), []).append(pair)
    for name, part in [*sorted(by_key.items()), ("all", list(pairs))]:
        cells = [summary([p for p in part if low <= p[0].nbytes < high]) for _, low, high in CLASSES]
        lines.append(f"{name:38}" + "".join(f"{cell:>18}" for cell in cells))
    return "\n".join(lines)


def by_op(row: Measurement) -> str:
    """The operation and the number of GPUs."""
    return f"{row.op:16} {row.world:3}"


def by_group(row: Measurement) -> str:
    """The machine, or the variables that were set."""
    return row.group


def left_out(rows: Sequence[Measurement], params: Params) -> Iterable[str]:
    """Yields lines on fits to a part of the measurements, and how well they predict the rest."""
    for world in sorted({row.world for row in rows}):
        fitted = fit([row for row in rows if row.world == world], params)
        rest = [row for row in rows if row.world != world and not row.env]
        yield table(f"fitted on {world} GPUs, predicts others", compare(rest, fitted), by_op)
    sizes = sorted({row.nbytes for row in rows})
    third = set(sizes[1::3])
    fitted = fit([row for row in rows if row.nbytes not in third], params)
    rest = [row for row in rows if row.nbytes in third and not row.env]
    yield table("fitted without every third size", compare(rest, fitted), by_op)


def main(argv: Sequence[str] | None = None) -> int:
    """Prints how the parameters fit, and how fits to a part predict the rest."""
    parser = argparse.ArgumentParser(prog="python -m netsim.tools.nccl_accuracy")
    parser.add_argument("measured", type=Path)
    parser.add_argument("--generation", default="hopper")
    parser.add_argument("--events-us", type=float, default=EVENTS_US, metavar="US", help="taken off each measurement")
    parser.add_argument("--rows", action="store_true", help="print every measurement of NCCL's own choice")
    parser.add_argument("--fit", action="store_true", help="fit the parameters and print them")
    parser.add_argument("--leave-out", action="store_true", help="fit on a part, predict the rest (minutes)")
    args = parser.parse_args(argv)
    rows, params = read(args.measured, args.events_us), load_params(args.generation)
    if args.fit:
        params = fit(rows, params)
        sys.stdout.write(toml(params) + "\n\n")
    pairs = compare(rows, params)
    own = [pair for pair in pairs if not pair[0].env]
    sys.stdout.write(table("NCCL's own choice", own, by_op) + "\n\n")
    sys.stdout.write(table("by machine and variable", pairs, by_group) + "\n")
    if args.rows:
        for row, guess in own:
            line = f"{row.op:16} {row.world} {row.nbytes:11} {row.us:9.1f} {guess:9.1f} {guess / row.us - 1:+7.1%}"
            sys.stdout.write(line + "\n")
    if args.leave_out:
        for text in left_out(rows, params):
            sys.stdout.write("\n" + text + "\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
