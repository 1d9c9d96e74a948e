"""Reports the time that data loaders took on this machine, and how many workers the simulated step needs."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from emu.contract import records
from emu.contract.policies import loading_policy
from phantora_async.run_spec import RunSpec
from phantora_async.wording import seconds

Document = dict[str, Any]
LEAST_IN_STEP = 0.05
"""The share of a step above which loading in the main process is mentioned. It always makes a step longer."""


def loading_document(
    spec: RunSpec, told: Sequence[Mapping[int, records.Loader]], steps: Sequence[int], step: Document
) -> Document | None:
    """The report's part on loading. It describes the loader from which ordinary steps take most batches; None if
    nothing was loaded. `told`: by rank, the records of its loaders; `steps`: the number of steps of each. Measured
    figures are those of this machine.
    """
    kinds: dict[tuple[str, int, int], list[tuple[int, records.Loader]]] = {}
    for rank, loaders in enumerate(told):
        for one in loaders.values():
            kinds.setdefault((_dataset(one), one.workers, one.prefetch), []).append((rank, one))
    if not kinds:
        return None
    # The loader that ordinary steps use most is the one that can bind them; loaders of evaluation are others.
    (dataset, workers, prefetch), most = max(
        sorted(kinds.items()),
        key=lambda kind: [sum(one.step_batches for _, one in kind[1]), sum(one.batches for _, one in kind[1])],
    )
    measured = [one for _, one in most if one.measured]
    per_step = [one.per_step for rank, one in most if steps[rank]]
    listed = step["each_ns"][max(0, step["first_counted"] - step["first_listed"]) :]
    share = spec.cluster.cpus_per_server / max(spec.servers)
    found: Document = {
        "policy": spec.loaders,
        "dataset": dataset,
        "loaders": len(kinds),
        "workers": workers,
        "prefetch_factor": prefetch,
        "ranks": len(most),
        "batches": sum(one.batches for _, one in most),
        "measured": sum(one.measured for one in measured),
        "cpu_ns": round(statistics.median(one.cpu_ns for one in measured)) if measured else 0,
        "slept_ns": round(statistics.median(one.latency_ns for one in measured)) if measured else 0,
        "scale": spec.host.scale,
        "cpus_per_rank": share,
        "batches_per_step": statistics.median(per_step) if per_step else None,
        "step_ns": step["median_ns"] if per_step else None,
        "step_mean_ns": round(statistics.fmean(listed)) if per_step else None,
        "waits": sum(one.waits for _, one in most),
        "waited_ns": sum(one.waited_ns for _, one in most),
        "step_waited_ns": max(one.step_waited_ns for _, one in most),
    }
    return found | _sustained(found)


def _dataset(one: records.Loader) -> str:
    return one.payload.decode(errors="replace")


def _sustained(found: Document) -> Document:
    """The supply and demand of batches: one every `batch_ns` on the described server; the demand of a step, and the
    number of workers that meets it.
    """
    cpu_ns = found["cpu_ns"] * found["scale"]
    alone_ns = cpu_ns + found["slept_ns"]
    batch_ns = max(alone_ns / max(1, found["workers"]), cpu_ns / found["cpus_per_rank"] if found["workers"] else 0)
    asked_ns, enough = None, None
    if found["step_ns"] and found["batches_per_step"]:
        asked_ns = found["step_ns"] / found["batches_per_step"]
        if cpu_ns / found["cpus_per_rank"] <= asked_ns:
            enough = max(1, math.ceil(alone_ns / asked_ns))
    free_ns = asked_ns if found["workers"] or asked_ns is None else LEAST_IN_STEP * asked_ns
    binds = found["policy"] == loading_policy.FREE and free_ns is not None and batch_ns > free_ns
    return {
        "batch_ns": round(batch_ns),
        "asked_ns": None if asked_ns is None else round(asked_ns),
        "workers_enough": enough,
        "binds": binds,
    }


def loading_binds(found: Mapping[str, Any] | None) -> bool:
    """Returns true if a step waits for loading most of all. In the main process loading is no part of the rest of a
    step.
    """
    if found is None:
        return False
    if found["policy"] != loading_policy.FREE:
        if found["step_ns"] is None or "step_waited_ns" not in found:  # no steps, or a report of an older version
            return bool(found["waits"])
        least = LEAST_IN_STEP if found["workers"] else 0.5
        return bool(found["step_waited_ns"] > least * found["step_mean_ns"])
    return bool(found["binds"] and (found["workers"] or found["batch_ns"] > found["asked_ns"]))


def binding_note(found: Mapping[str, Any] | None) -> str:
    """The note on loading that is shown beside the step time; "" if loading does not bind."""
    if found is None:
        return ""
    if found["policy"] != loading_policy.FREE:
        if not found["waits"]:
            return ""
        waits = f"{found['waits']:,} of {found['batches']:,} batches, {seconds(found['waited_ns'])} in all"
        if not found["workers"]:
            return f"loading takes time in the main process (--loaders {found['policy']}): {waits}"
        what = "loading binds" if loading_binds(found) else "loading takes time"
        mean = f"; a step takes {seconds(found['step_mean_ns'])} in the mean" if found["step_mean_ns"] else ""
        return f"{what} (--loaders {found['policy']}): ranks waited for {waits}{mean}"
    if not found["binds"]:
        return ""
    if not found["workers"]:
        takes_ns = round(found["step_ns"] + found["batch_ns"] * found["batches_per_step"])
        what = "loading binds" if loading_binds(found) else "loading takes a part of each step"
        return (
            f"{what}: the main process loads, {seconds(found['batch_ns'])} of CPU time a batch, of which the "
            f"step has Python functions and operators only; with all of it a step takes up to {seconds(takes_ns)}"
        )
    takes_ns = round(found["batch_ns"] * found["batches_per_step"])
    loads = f"{_workers(found)} {_load(found)} a batch every {seconds(found['batch_ns'])}"
    asks = f"the step asks for one every {seconds(found['asked_ns'])}"
    takes = f"a step takes {seconds(takes_ns)}, not {seconds(found['step_ns'])}"
    return f"loading binds: {loads}, {asks}; {takes}; {_enough(found)}"


def loading_notes(found: Mapping[str, Any] | None) -> list[str]:
    """The notes on loading for the terminal."""
    if found is None:
        return []
    if not found["measured"]:
        return [f"data loading ({found['dataset']}): what it takes was not measured, as its workers are other programs"]
    what = f"data loading ({found['dataset']}): a batch takes {seconds(found['cpu_ns'])} of CPU time on this machine"
    what += f" (median of {found['measured']:,})"
    if found["slept_ns"]:
        what += f" and sleeps {seconds(found['slept_ns'])}"
    if found["scale"] != 1:
        what += f", {found['scale']:g} times that on the described host"
    if not found["workers"]:
        what += "; it is loaded in the main process"
    else:
        what += f"; {_workers(found)} {_load(found)} one every {seconds(found['batch_ns'])}"
    if found["policy"] == loading_policy.FREE:
        if found["asked_ns"] is not None and found["workers"] and not found["binds"]:
            what += f", the step asks for one every {seconds(found['asked_ns'])}: {_enough(found)}"
        return [f"{what}. It takes no virtual time; with --loaders modelled it does"]
    if found["policy"] == loading_policy.MODELLED:
        return [f"{what}. The step rests on this measurement and is not reproducible; --loaders TIME states it"]
    return [f"{what}. What counts is {found['policy']}, as stated"]


def _workers(found: Mapping[str, Any]) -> str:
    return "1 worker a rank" if found["workers"] == 1 else f"{found['workers']} workers a rank"


def _enough(found: Mapping[str, Any]) -> str:
    if found["workers_enough"] is None:
        return f"no number of workers is enough on {found['cpus_per_rank']:g} CPUs a rank"
    return f"{found['workers_enough']} would do"


def _load(found: Mapping[str, Any]) -> str:
    return "loads" if found["workers"] == 1 else "load"
