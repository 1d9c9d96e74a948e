"""Figures of a benchmark as text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from phantora_async.bench.measurement import Point

HEADER = (
    "ranks scaling   wall s  start s  s/step | CPU s:  ranks    hook   coord  kernel   start  per rank | "
    "wall x cores / CPU | PSS MB  records/s  rollbacks/s  simulated step"
)


def line(point: Point) -> str:
    head = f"{point.ranks:5d} {point.scaling:<7}"
    if point.failure:
        return f"{head}  failed: {point.failure}"
    cpu = "".join(f" {point.cpu[part]:7.1f}" for part in ("ranks", "hook", "coordinator", "kernel", "start"))
    pss = f"{point.pss_nbytes / 1e6:6.0f}" if point.pss_nbytes else "     -"
    ratio = f"{point.wall_ratio:18.2f}" if point.wall_ratio else f"{'-':>18}"
    step = f"{point.simulated_step_ns / 1e6:11.2f} ms" if point.simulated_step_ns else "             -"
    return (
        f"{head} {point.wall_s:8.1f} {_seconds(point.start_s)} {_seconds(point.step_s, 7)} |       {cpu} "
        f"{point.cpu_per_rank_s:9.2f} | {ratio} | {pss} {point.records_per_s:10,.0f} "
        f"{point.rollbacks_per_s:12.1f}  {step}"
    )


def _seconds(value: float | None, width: int = 8) -> str:
    return f"{'-':>{width}}" if value is None else f"{value:{width}.2f}"


def profile_lines(found: Mapping[str, Any], most: int = 15) -> list[str]:
    """The top functions of both sides: of the coordinator by cProfile, of rank 0 by samples of its main thread."""
    coordinator, rank = found.get("coordinator", []), found.get("rank", {})
    lines = ["coordinator, CPU time in the function itself (cProfile):"]
    lines += [f"  {one['self_s']:7.2f} s  {one['calls']:10,} calls  {one['function']}" for one in coordinator[:most]]
    samples = max(1, rank.get("samples", 0))
    lines.append(f"rank 0, share of {samples} samples that end in the function, and that it is in:")
    for one in rank.get("functions", [])[:most]:
        lines.append(f"  {one['self'] / samples:6.1%} {one['inside'] / samples:6.1%}  {one['function']}")
    return lines
