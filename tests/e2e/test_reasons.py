"""`run --reasons`: the parts are the step, the reason is the right one, and what-if is what a second run finds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from phantora_async.reasons import what_if
from profiles import load_cluster, load_gpu, load_host
from profiles.host import CALL_KINDS, WORK_KINDS

from .conftest import Run

TWO_SERVERS = ("--cluster", "laptop", "--gpu", "h200")
"""With one GPU each, behind 10 Gbit/s."""


def by_kind(reasons: dict[str, Any]) -> Counter[str]:
    found: Counter[str] = Counter()
    for part in reasons["parts"]:
        found[part["kind"]] += part["ns"]
    return found


@pytest.mark.parametrize(
    ("job", "n", "options", "kind"),
    [
        ("compute", 2, (), "compute"),
        ("host", 2, (), "host"),
        ("network", 2, TWO_SERVERS, "communication"),
        ("straggler", 3, (), "straggler"),
        ("pipeline", 3, (), "peer"),
    ],
)
def test_a_step_has_its_reason(shared_run: Run, job: str, n: int, options: tuple[str, ...], kind: str) -> None:
    finished = shared_run("reasons.py", job, n=n, options=("--reasons", *options))
    assert finished.exit_code == 0, finished.output
    reasons = finished.simulated["reasons"]
    assert reasons["missing"] == ""
    assert sum(part["ns"] for part in reasons["parts"]) == reasons["ns"] == reasons["run_ns"]
    assert reasons["run_ns"] == finished.simulated["step"]["each_ns"][reasons["step"] - 2]
    path = reasons["path"]
    assert (path[0]["start_ns"], path[-1]["end_ns"]) == (0, reasons["ns"])
    assert all(before["end_ns"] == after["start_ns"] for before, after in pairwise(path))
    kinds = by_kind(reasons)
    assert kinds.most_common(1)[0][0] == kind, kinds
    if job == "straggler":
        (first, *_) = [part for part in reasons["parts"] if part["kind"] == kind]
        assert (first["name"], first["doing"]) == ("rank 1", "compute")
        assert kinds[kind] > reasons["ns"] / 3
    assert reasons["collectives"]["gpu"]
    assert f"why step {reasons['step']} takes" in finished.output


def test_reasons_change_nothing_else(run: Run, shared_run: Run) -> None:
    with_reasons = shared_run("reasons.py", "compute", options=("--reasons",))
    without = run("reasons.py", "compute")
    found = with_reasons.simulated
    assert found.pop("reasons")["missing"] == ""
    assert found == without.simulated


def test_a_run_without_steps_says_so(run: Run) -> None:
    finished = run("objects.py", options=("--reasons",))
    assert finished.exit_code == 0, finished.output
    assert "optimizer step" in finished.simulated["reasons"]["missing"]
    assert "no reasons are given" in finished.output


# ---- what-if -----------------------------------------------------------------------------------------------------


def faster_gpu(file: Path, resource: str) -> tuple[str, ...]:
    gpu = load_gpu("h200")
    if resource == "GPU compute":
        faster = what_if.faster_compute(gpu)
        figures = [f"{dtype} = {flops / 1e12}" for dtype, flops in faster.peaks]
        file.write_text("\n".join(['base = "h200"', "[peak_tflops]", *figures]))
    else:
        faster = what_if.faster_memory(gpu)
        achieved = [f"{name} = {getattr(faster.achieved, name)}" for name in ("l2_gb_per_s", "sm_gb_per_s")]
        bandwidth = f"bandwidth_gb_per_s = {faster.memory.bandwidth_gb_per_s}"
        file.write_text("\n".join(['base = "h200"', "[memory]", bandwidth, "[achieved]", *achieved]))
    return "--gpu", str(file)


def faster_host(file: Path, resource: str) -> tuple[str, ...]:
    cost_ns = load_host("xeon-h200").cost_ns
    calls = [f"{kind} = {cost_ns[kind] / what_if.FASTER}" for kind in CALL_KINDS]
    work = [f"{kind} = {cost_ns[kind] / what_if.FASTER}" for kind in WORK_KINDS]
    host = file.with_name("host.toml")
    host.write_text("\n".join(['base = "xeon-h200"', "[call_ns]", *calls, "[work_ns]", *work]))
    file.write_text(f'base = "dgx-h200"\nhost = "{host}"\n')
    return "--cluster", str(file)


def faster_network(file: Path, resource: str) -> tuple[str, ...]:
    server = what_if.faster_network(load_cluster("laptop")).network["server"]
    file.write_text(f'base = "laptop"\n[network.server]\nnic_gbps = {server["nic_gbps"]}\n')
    return "--cluster", str(file), "--gpu", "h200"


@pytest.mark.parametrize(
    ("job", "options", "resources", "describe"),
    [
        ("compute", (), ("GPU compute", "GPU memory"), faster_gpu),
        ("host", (), ("host",), faster_host),
        ("network", TWO_SERVERS, ("network between servers",), faster_network),
    ],
)
def test_what_if_is_what_a_second_run_finds(
    run: Run,
    shared_run: Run,
    tmp_path: Path,
    job: str,
    options: tuple[str, ...],
    resources: tuple[str, ...],
    describe: Callable[[Path, str], tuple[str, ...]],
) -> None:
    first = shared_run("reasons.py", job, options=("--reasons", *options))
    reasons = first.simulated["reasons"]
    for resource in resources:
        (expected_ns,) = [one["ns"] for one in reasons["what_if"] if one["resource"] == resource]
        second = run("reasons.py", job, options=describe(tmp_path / "faster.toml", resource))
        assert second.exit_code == 0, second.output
        found_ns = second.simulated["step"]["each_ns"][reasons["step"] - 2]
        print(f"{job}, {resource}: {reasons['ns']} ns, what-if {expected_ns}, real {found_ns}")
        assert expected_ns < 0.97 * reasons["ns"]
        assert expected_ns == pytest.approx(found_ns, rel=0.005)
