"""Makes of a report what a baseline keeps of it: its setup, and what `compare` needs to say why figures changed.

The ranks become one that stands for all: its times are means, its memory is that of the fullest GPU.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

from phantora_async.comparison import Comparison, Difference, Side, compare
from phantora_async.comparison.setup import CONTENTS, SCRIPT
from phantora_async.figures import TIME_ACCOUNTS
from phantora_async.figures.run_figures import has_steps

Report = Mapping[str, Any]
OF_RUN = ("kind", "script", "script_sha256", "arguments", "options", "versions", "environment", "descriptions")
OF_SIMULATED = ("world_size", "servers", "gpu", "cluster", "host", "host_mode", "step", "work")
OF_STEP = ("source", "median_ns", "counted", "interval")
OF_SIGNATURE = ("signature", "title", "model", "launches", "total_ns")
NO_SETUP = (
    SCRIPT,
    CONTENTS,
    "--fold",
    "--fold-apart",
    "--witnesses",
    "--roles",
    "--replicas",
    "--isolation",
    "--steps",
)
"""The settings that change no figure, and the script itself, whose changes a check is for."""
SAID = ("version of phantora-async", "version of python")
"""The settings whose change is told, but does not keep figures from being compared."""
SCALE_NS = 1_000_000_000
"""The ns to which the times of ranks are scaled before their mean is taken, as their windows may differ."""


def digest(report: Report) -> dict[str, Any] | None:
    """The facts that the baseline keeps; None for a report that does not tell its setup."""
    simulated = report["simulated"]
    if "run" not in report or not all(name in simulated for name in (*OF_SIMULATED, "kernels", "ranks")):
        return None
    counted = int(simulated["step"].get("counted", 1))
    steps, gpus = max(counted, 1), len(simulated["ranks"])
    kernels = simulated["kernels"]
    by_step = kernels["window"] == "steps"
    kept: dict[str, Any] = {name: simulated[name] for name in OF_SIMULATED}
    kept["step"] = {name: kept["step"].get(name) for name in OF_STEP}
    kept["faults"] = [{"text": one["text"]} for one in simulated.get("faults", [])]
    if "routing" in simulated:
        kept["routing"] = {"policy": simulated["routing"]["policy"]}
    if simulated.get("data_shapes", {}).get("places"):
        kept["data_shapes"] = {"policy": simulated["data_shapes"]["policy"], "places": [{}]}
    if fullest := simulated.get("memory", {}).get("fullest"):
        kept["memory"] = {"fullest": {name: fullest[name] for name in ("rank", "parts", "holders")}}
    kept["ranks"] = [_mean_rank(simulated["ranks"], steps)]
    kept["kernels"] = {
        "window": kernels["window"],
        "signatures": [
            {name: one.get(name) for name in OF_SIGNATURE}
            | {"launches": one["launches"] / gpus, "total_ns": one["total_ns"] / gpus}
            for one in kernels["signatures"]
        ],
    }
    if calls := simulated.get("calls"):
        kept["calls"] = {"window": calls["window"]} | {
            name: [one | {"calls": one["calls"] / gpus} for one in calls[name]] for name in ("collectives", "waits")
        }
    if not by_step and has_steps(simulated["step"]):
        kept["ranks"][0]["steps"] = fmean(one.get("steps", 0) for one in simulated["ranks"])
    run = {name: report["run"][name] for name in OF_RUN if name in report["run"]}
    return {"run": run, "exit_code": report.get("exit_code", 0), "failure": None, "simulated": kept}


def _mean_rank(ranks: Sequence[Mapping[str, Any]], steps: int) -> dict[str, Any]:
    # An account of a later version stays out, so that a comparison knows where its time is.
    accounts = [account for account in TIME_ACCOUNTS if all(account.ns in rank for rank in ranks)]
    shares = dict.fromkeys((account.ns for account in accounts), 0.0)
    for rank in ranks:
        total = sum(account.time_of(rank) for account in accounts) or 1
        for account in accounts:
            shares[account.ns] += account.time_of(rank) / total / len(ranks) * SCALE_NS
    known = [one["host_work_ns"] / one["window_ns"] for one in ranks if one.get("window_ns") and "host_work_ns" in one]
    of_memory = ("allocated_peak_nbytes", "reserved_peak_nbytes")
    return {
        **shares,
        **({"host_work_ns": fmean(known) * SCALE_NS, "window_ns": SCALE_NS} if known else {}),
        "steps": ranks[0].get("steps", steps),
        "counted_steps": [1, steps],
        "memory": {name: max(one["memory"][name] for one in ranks) for name in of_memory},
    }


def compared(before: Report, now: Report) -> Comparison:
    return compare([Side("the baseline", before), Side("this run", now)])


def changed_setup(found: Comparison) -> tuple[list[str], list[str]]:
    """The settings that differ from those of the baseline: those that keep figures from being compared, and others."""
    refused = [one for one in found.differences if one.what not in (*NO_SETUP, *SAID)]
    said = [one for one in found.differences if one.what in SAID]
    return [_text(one) for one in refused], [_text(one) for one in said]


def _text(one: Difference) -> str:
    before, now = ("none" if value is None else value for value in one.values)
    return f"{one.what} {before} -> {now}"
