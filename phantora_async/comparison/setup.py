"""Finds what was set up differently: script, arguments, options, GPUs, versions, environment, descriptions."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from phantora_async.options import JOB, MACHINE, OPTIONS, RunOptions

Report = Mapping[str, Any]
ELSEWHERE = (
    "world_size",
    "nnodes",
    "nproc_per_node",
    "cluster",
    "gpu",
    "host",
    "moe",
    "data_shapes",
    "compile_cache",
    "fault",
    "faults",
    "module",
    "launcher",
)
"""The options that other rows show, or that change no figure."""
DATA_SHAPES = "--data-shapes"
SCRIPT, CONTENTS = "script", "script's contents (SHA-256)"
GPU_FACTS = {
    "GPU memory, GiB": (".memory.total_nbytes", 2**30),
    "GPU memory bandwidth, GB/s": (".memory.bandwidth_gb_per_s", 1),
    "GPU clock, MHz": (".sm_clock_khz", 1000),
    "GPU's peak in bf16, TFLOP/s": (".peaks.bf16", 1e12),
}
OF_GPUS = "among"
"""The field of descriptions that follows from the number of GPUs, which is a setting of its own."""
DIGITS = 12
"""The digits of a script's SHA-256 that are shown."""


@dataclass(frozen=True, slots=True)
class Difference:
    """A setting in which the runs differ."""

    what: str
    values: tuple[str | None, ...]
    """The setting's value for each run; None: the run has none, or its report does not say."""


def differences(reports: Sequence[Report]) -> list[Difference]:
    """The settings in which the runs differ. A setting that an older report does not record is left out for all."""
    flat = [dict(_simulated(report["simulated"])) for report in reports]
    if all("run" in report for report in reports):
        same_gpu = len({report["simulated"]["gpu"] for report in reports}) == 1
        same_cluster = len({report["simulated"]["cluster"] for report in reports}) == 1
        same_host = len({report["simulated"]["host"] for report in reports}) == 1
        described = {"gpu": same_gpu, "cluster": same_cluster, "host": same_host}
        for one, report in zip(flat, reports, strict=True):
            one.update(_run(report["run"], described))
    names = dict.fromkeys(name for one in flat for name in one)
    contents = {one.get(CONTENTS) for one in flat}
    if len(contents) == 1 and None not in contents:
        del names[SCRIPT]  # the same under another path
    rows = (Difference(name, tuple(one.get(name) for one in flat)) for name in names)
    return [row for row in rows if len(set(row.values)) > 1]


def _simulated(simulated: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    yield "GPUs", str(simulated["world_size"])
    yield "GPUs of each server", _runs(simulated["servers"])
    yield "GPU", simulated["gpu"]
    yield "cluster", simulated["cluster"]
    yield "host", simulated["host"]
    yield "host's time", simulated["host_mode"]
    if "routing" in simulated:
        yield "--moe", simulated["routing"]["policy"]
    if simulated.get("data_shapes", {}).get("places"):
        yield DATA_SHAPES, simulated["data_shapes"]["policy"]
    yield "faults", ", ".join(one["text"] for one in simulated.get("faults", [])) or "none"


def _runs(servers: Sequence[int]) -> str:
    """The GPUs of the servers: ``8`` if all have as many, ``8, 8, 4`` otherwise."""
    return str(servers[0]) if len(set(servers)) == 1 else ", ".join(map(str, servers))


def _run(run: Mapping[str, Any], described: Mapping[str, bool]) -> Iterator[tuple[str, str]]:
    """Yields the settings of one run. `described`: whether a kind of description has the same name in all runs, and so
    is compared field by field.
    """
    yield SCRIPT, run.get("script", "")
    if run.get("script_sha256"):
        yield CONTENTS, run["script_sha256"][:DIGITS]
    yield from _arguments(run.get("arguments", []))
    yield from _options(run.get("options", {}))
    for name, value in run.get("versions", {}).items():
        if value:
            yield f"version of {name}", str(value)
    for name, value in run.get("environment", {}).items():
        yield f"environment: {name}", str(value)
    descriptions = run.get("descriptions", {})
    for name, same in described.items():
        if same:
            yield from _flat(name, descriptions.get(name, {}))
    if not described["gpu"]:
        yield from _gpu_facts(descriptions.get("gpu", {}))


def _arguments(words: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yields ``--lr 3e-4``, ``--lr=3e-4`` and ``lr=3e-4`` by name, the other arguments together in their order."""
    named: dict[str, list[str]] = {}
    others: list[str] = []
    left = list(words)
    while left:
        word = left.pop(0)
        name, equals, value = word.partition("=")
        if equals and name:
            named.setdefault(name, []).append(value)
        elif word.startswith("-") and not _is_number(word):
            takes = left and (not left[0].startswith("-") or _is_number(left[0])) and "=" not in left[0]
            named.setdefault(word, []).append(left.pop(0) if takes else "given")
        else:
            others.append(word)
    for name, values in named.items():
        yield f"argument {name}", ", ".join(values)
    if others:
        yield "arguments without a name", " ".join(others)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _options(given: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yields the options that may change a figure, with their values or defaults."""
    defaults = {field.name: field.default for field in fields(RunOptions)}
    for name, option in OPTIONS.items():
        if option.group in (JOB, MACHINE) and not option.hidden and name not in ELSEWHERE:
            value = given.get(name, defaults[name])
            yield option.flags[0], ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


def _flat(name: str, value: Any) -> Iterator[tuple[str, str]]:
    """Yields nested fields by a dotted name such as ``gpu.memory.total_nbytes``."""
    if isinstance(value, Mapping):
        for key, inner in value.items():
            if key != OF_GPUS:
                yield from _flat(f"{name}.{key}", inner)
    elif isinstance(value, list) and all(isinstance(one, list) and len(one) == 2 for one in value):
        yield from _flat(name, {str(key): inner for key, inner in value})
    else:
        yield name, str(value)


def _gpu_facts(gpu: Any) -> Iterator[tuple[str, str]]:
    """Yields the facts of a GPU that matter most when different GPUs are compared."""
    described = dict(_flat("", gpu))
    for name, (key, unit) in GPU_FACTS.items():
        with contextlib.suppress(KeyError, ValueError):
            yield name, f"{float(described[key]) / unit:,.0f}"
