"""The figures of `document` for a terminal."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

UNITS = (("d", 86400.0), ("h", 3600.0), ("min", 60.0), ("s", 1.0), ("ms", 1e-3))
LOST = (
    ("checkpoints", "standing still for checkpoints"),
    ("lost_work", "work that was lost"),
    ("restarts", "restarts"),
)


def time_text(time_s: float) -> str:
    """The time in a fitting unit: ``3.09 h``."""
    unit, scale = next(((unit, scale) for unit, scale in UNITS if time_s >= scale), UNITS[-1])
    return f"{time_s / scale:.3g} {unit}"


def text(document: Mapping[str, Any]) -> str:
    rates, simulated, best, horizon_s = (
        document["rates"],
        document["simulated"],
        document["best"],
        document["horizon_s"],
    )
    lines = [
        f"{_many(document['gpus'], 'GPU')} on {_many(document['nodes'], 'node')}, {time_text(horizon_s)}: "
        f"a failure every {time_text(rates['mean_s'])} ({rates['source']})",
        f"a checkpoint after every {time_text(document['interval_s'])} of work",
        "",
        f"goodput  {document['goodput']:7.2%}   of the time is work that lasts",
    ]
    for key, name in LOST:
        share = document["lost"][key]
        lines.append(f"lost     {share:7.2%}   {name}: {time_text(share * horizon_s)}")
    lines.append("")
    for cause, one in sorted(document["causes"].items(), key=lambda item: -item[1]["lost_s"]):
        lines.append(
            f"{cause:<9}{one['lost_share']:7.2%}   {one['failures']:,.1f} failures, {time_text(one['lost_s'])} lost"
        )
    lines += [
        "",
        _simulated(simulated, time_text(horizon_s)),
        f"best interval: {time_text(best['interval_s'])}, goodput {best['goodput']:.2%} "
        f"(Young: {time_text(best['young_s'])}, Daly: {time_text(best['daly_s'])})",
    ]
    if not simulated.get("agrees", True):
        lines.append("warning: the simulation is more than three standard errors away from the closed form")
    speed = [f"{document['tokens_per_s']:,.0f} tokens/s"] if document["tokens_per_s"] is not None else []
    speed += [f"MFU {document['mfu']:.1%}"] if document["mfu"] is not None else []
    if speed:
        lines.append(f"effective: {', '.join(speed)}")
    return "\n".join(lines)


def _simulated(simulated: Mapping[str, Any], horizon: str) -> str:
    times = f"{simulated['runs']} times {horizon}"
    if simulated["left_out"]:
        return f"not simulated: {times} have too many failures or checkpoints to follow; the closed form needs none"
    return (
        f"simulated: {simulated['useful']:.2%} with a standard error of {simulated['error']:.2%} "
        f"({times}, seed {simulated['seed']}); nine in ten keep {simulated['low']:.1%} to {simulated['high']:.1%}"
    )


def _many(count: int, name: str) -> str:
    return f"{count:,} {name}{'s' * (count != 1)}"
