"""Host descriptions: their file, and finding costs from programs."""

from __future__ import annotations

import dataclasses
import json
import random
from pathlib import Path
from statistics import geometric_mean

import pytest

import profiles
from laboratory.fits.host_error import expected, machines, rank_spread
from profiles.host_fit import AGAIN, fit, scale

KINDS = (*profiles.CALL_KINDS, *profiles.WORK_KINDS)
KNOWN = profiles.load_host("xeon-h200")
MEASURED = ("name", "cost_ns", "spread", "scale", "measured", "path")
"""The other fields are those that no program measures."""


@pytest.mark.parametrize("name", profiles.host_names())
def test_shipped_hosts_say_where_they_come_from_and_how_they_spread(name: str) -> None:
    host = profiles.load_host(name)
    assert set(host.cost_ns) == set(KINDS)
    assert {"cpu", "python", "torch", "date", "programs"} <= set(host.measured)
    assert host.spread.fast < 1 < host.spread.slow
    assert host.spread.error > 0


def test_the_spread_is_that_of_machines_which_were_left_out() -> None:
    """Nine machines in ten are where the others say. The shipped description is the mean machine (of logarithms), with
    the spread that all of them have."""
    lines = (Path(__file__).parents[3] / "laboratory" / "rows" / "host-machines.jsonl").read_text().splitlines()
    medians = [json.loads(line)["median"] for line in lines]
    held = 0
    for n, one in enumerate(medians):
        fast, slow = expected(medians[:n] + medians[n + 1 :])
        held += fast <= one <= slow
    assert held >= 0.85 * len(medians)
    assert geometric_mean(medians) == pytest.approx(1, abs=0.01)
    assert (KNOWN.spread.fast, KNOWN.spread.slow) == pytest.approx(expected(medians), abs=0.006)
    assert f"{held} of {len(medians)} held" in machines(lines)


TWO_AT_ONCE = ("host-rounds-h100-x2.jsonl", "host-programs-h100-x2.jsonl", "host-ranks-h100-x2.jsonl")


def test_ranks_differ_as_two_at_once_did() -> None:
    data = Path(__file__).parents[3] / "laboratory" / "rows"
    lines = [line for name in TWO_AT_ONCE for line in (data / name).read_text().splitlines()]
    assert KNOWN.spread.ranks == pytest.approx(rank_spread(lines), abs=0.005)


def test_the_difference_of_two_ranks_is_that_of_both() -> None:
    """One takes 20 % more than the other in every program: each is 0.129 from the mean rank (ln 1.2 / sqrt 2)."""
    told = [{"part": "detached", "measurement": "a", "ns": {"p": [n, 3 * n, n], "q": [7 * n]}} for n in (100, 120)]
    assert rank_spread([json.dumps(one) for one in told]) == pytest.approx(0.1289, abs=1e-4)
    told[1]["measurement"] = "b"
    with pytest.raises(ValueError, match="two ranks were expected"):
        rank_spread([json.dumps(one) for one in told])


def test_a_written_host_is_read_back(tmp_path: Path) -> None:
    costs = {kind: 0.7 * (i + 1) ** 3 for i, kind in enumerate(KINDS)} | {"python_op": 0.0}
    path = tmp_path / "mine.toml"
    like = dataclasses.replace(
        KNOWN,
        queue_depth=512,
        host_function_ns=9_000,
        hot_within_functions=128,
        cold_after_functions=600,
        kept_table_nbytes=1 << 20,
    )
    path.write_text(
        profiles.host_toml(
            costs, profiles.Spread(0.9, 1.2, 0.07, 0.08), {"cpu": "mine"}, like=like, comment="One.\nTwo."
        )
    )
    host = profiles.load_host(path)
    assert host.cost_ns == pytest.approx(costs, rel=0.01)
    assert (host.spread, host.measured) == (profiles.Spread(0.9, 1.2, 0.07, 0.08), {"cpu": "mine"})
    assert dataclasses.replace(like, **{name: getattr(host, name) for name in MEASURED}) == host
    lines = host.device_file_lines()
    assert f"host_ns.op={round(host.cost_ns['op'])}" in lines
    assert f"host_ns.code_unit={round(1000 * host.cost_ns['code_unit'])}" in lines, "in picoseconds"


@pytest.mark.parametrize(
    ("before", "after", "fault"),
    [
        ("view_op = ", "viewop = ", r"work_ns\.view_op: missing"),
        ("[spread]", "[spread]\nmedium = 1.0", r"spread\.medium: unknown key"),
        ("[work_ns]", "[work_ns]\ndance = 1", r"work_ns\.dance: unknown key"),
        ("fast = 0.", "fast = 1.", r"spread\.fast: expected a number"),
        ("launch = ", "launch = -", r"call_ns\.launch: expected a number"),
    ],
)
def test_a_host_with_a_fault(tmp_path: Path, before: str, after: str, fault: str) -> None:
    path = tmp_path / "host.toml"
    text = profiles.path_of("xeon-h200").read_text()
    assert before in text
    path.write_text(text.replace(before, after))
    with pytest.raises(profiles.ProfileError, match=fault):
        profiles.load_host(path)


def programs(n: int, seed: int = 0) -> dict[str, dict[str, float]]:
    """Returns programs, each of which has more of some kinds than the others."""
    chosen = random.Random(seed)
    usual = {kind: 3e6 / len(KINDS) / max(KNOWN.cost_ns[kind], 0.1) for kind in KINDS}
    return {f"p{i}": {kind: usual[kind] * chosen.choice((0, 0, 0, 1, 5)) for kind in KINDS} for i in range(n)}


def timed(counts: dict[str, dict[str, float]], costs: dict[str, float], kinds: tuple[str, ...]) -> dict[str, float]:
    return {name: sum(units[kind] * costs[kind] for kind in kinds) for name, units in counts.items()}


def other_host() -> dict[str, float]:
    chosen = random.Random(1)
    return {kind: max(ns, 0.1) * chosen.uniform(0.6, 1.7) for kind, ns in KNOWN.cost_ns.items()}


def test_costs_are_found_from_programs_with_a_gpu() -> None:
    costs, counts = other_host(), programs(120)
    detached = timed(counts, costs, profiles.WORK_KINDS)
    real = timed(counts, costs, KINDS)
    found = fit(counts, KNOWN.cost_ns, real, detached)
    assert found.error < 0.05
    worst = max(abs(found.cost_ns[kind] / costs[kind] - 1) for kind in KINDS)
    assert worst < 0.25, "the known host draws each a little"
    together = fit(counts, KNOWN.cost_ns, real, None)
    assert together.error < 0.05


def test_without_a_gpu_calls_cost_what_they_do_on_the_known_host() -> None:
    costs, counts = other_host(), programs(80)
    found = fit(counts, KNOWN.cost_ns, None, timed(counts, costs, profiles.WORK_KINDS))
    assert {kind: found.cost_ns[kind] for kind in profiles.CALL_KINDS} == {
        kind: KNOWN.cost_ns[kind] for kind in profiles.CALL_KINDS
    }
    assert found.error < 0.05


def test_a_kind_that_no_program_has_stays_as_on_the_known_host() -> None:
    counts = {name: units | {"scope": 0.0} for name, units in programs(40).items()}
    found = fit(counts, KNOWN.cost_ns, timed(counts, other_host(), KINDS), None)
    assert found.cost_ns["scope"] == pytest.approx(KNOWN.cost_ns["scope"])


def test_the_error_is_that_of_programs_left_out() -> None:
    counts = programs(30)
    times = timed(counts, other_host(), KINDS)
    times["p0"] *= 3
    found = fit(counts, KNOWN.cost_ns, times, None)
    assert found.errors["p0"] < -0.5
    assert fit({"p1": counts["p1"]}, KNOWN.cost_ns, times, None).errors.keys() == {"p1"}
    with pytest.raises(ValueError, match="no program"):
        fit(counts, KNOWN.cost_ns, {}, None)


def test_one_factor_for_all_costs_is_the_mean_of_the_programs() -> None:
    counts = programs(2)
    times = {
        name: f * sum(KNOWN.cost_ns[kind] * n for kind, n in units.items())
        for f, (name, units) in zip((0.5, 2.0), counts.items(), strict=True)
    }
    found = scale(counts, KNOWN.cost_ns, times, None)
    assert found.cost_ns == pytest.approx(KNOWN.cost_ns)
    assert found.errors == pytest.approx({"p0": 3.0, "p1": -0.75})
    alone = scale(counts, KNOWN.cost_ns, None, timed(counts, KNOWN.cost_ns, profiles.WORK_KINDS) | {"p2": 1.0})
    assert alone.cost_ns == pytest.approx(KNOWN.cost_ns)
    with pytest.raises(ValueError, match="no program"):
        scale(counts, KNOWN.cost_ns, {}, None)


def test_one_program_that_is_far_off_does_not_make_the_error() -> None:
    errors = {f"p{n}": 0.1 * (-1) ** n for n in range(20)}
    usual = profiles.Fit({}, errors).error
    assert usual == pytest.approx(0.1)
    assert profiles.Fit({}, errors | {"tables": 4.0}).error == pytest.approx(
        (0.1 * 0.1 * 20 / 21 + 0.44478**2 / 21) ** 0.5
    )


def test_the_only_program_with_a_kind_says_nothing_about_the_error() -> None:
    """Without it the cost of that kind is the known host's, which may be far from this one's."""
    counts = {f"p{i}": {"op": 1000.0 + 100 * i, "frame": (0.0, 3e3, 3e4)[i % 3]} for i in range(6)}
    times = {name: 2.0 * sum(KNOWN.cost_ns[kind] * n for kind, n in units.items()) for name, units in counts.items()}
    counts["tables"] = {"fresh_table_kib": 1000.0, "op": 10.0}
    times["tables"] = 2 * KNOWN.cost_ns["fresh_table_kib"] * 1000.0
    found = profiles.fit(counts, KNOWN.cost_ns, None, times)
    assert "tables" not in found.errors
    assert set(found.errors) == {f"p{i}" for i in range(6)}
    assert found.cost_ns["fresh_table_kib"] == pytest.approx(2 * KNOWN.cost_ns["fresh_table_kib"], rel=0.1)


def test_programs_of_the_same_work_are_left_out_together() -> None:
    """Two that do the same would predict each other, whatever the host costs elsewhere."""
    counts = {f"p{i}": {"op": 1000.0 + 100 * i, "frame": 9000.0 + 11000.0 * (i % 4)} for i in range(6)}
    counts |= {"alone": {"op": 5000.0, "frame": 1.0}, "again": {"op": 5100.0, "frame": 2.0}}
    times = timed(counts, KNOWN.cost_ns, ("op", "frame"))
    times |= {name: 2 * times[name] for name in ("alone", "again")}
    found = fit(counts, KNOWN.cost_ns, None, times)
    assert found.errors["alone"] < -0.3
    assert found.errors["again"] < -0.3


def test_both_runs_of_a_program_are_left_out_together() -> None:
    """The one right after itself has other shares of the work, but an operator dear in one is dear in the other."""
    counts = {f"p{i}": {"op": 1000.0 + 100 * i, "frame": 4000.0 + 5000.0 * (i % 4)} for i in range(6)}
    counts |= {"dear": {"op": 900.0, "frame": 20000.0}, f"dear{AGAIN}": {"op": 5000.0, "frame": 1.0}}
    times = timed(counts, KNOWN.cost_ns, ("op", "frame"))
    alone = fit(counts, KNOWN.cost_ns, None, times | {"dear": 2 * times["dear"]})
    both = fit(counts, KNOWN.cost_ns, None, {name: (2 if "dear" in name else 1) * ns for name, ns in times.items()})
    assert both.errors["dear"] == pytest.approx(alone.errors["dear"])
    assert scale(counts, KNOWN.cost_ns, None, times).errors[f"dear{AGAIN}"] == pytest.approx(0.0)


def test_phases_tell_apart_what_all_programs_have_alike() -> None:
    """A node is made in the forward pass and runs in the backward pass: a step has as many of one as of the other."""
    costs = KNOWN.cost_ns | {"made_node": 3 * KNOWN.cost_ns["made_node"], "node": KNOWN.cost_ns["node"] / 3}
    phases = {}
    for i in range(6):
        phases[f"p{i}: forward"] = {"op": 100.0 + 50 * (i % 3), "made_node": 400.0 + 10 * i}
        phases[f"p{i}: backward"] = {"op": 200.0 + 90 * (i % 3), "node": 400.0 + 10 * i}
    steps = {
        f"p{i}": {
            kind: sum(phases[f"p{i}: {phase}"].get(kind, 0.0) for phase in ("forward", "backward"))
            for kind in ("op", "made_node", "node")
        }
        for i in range(6)
    }

    def found(counts: dict[str, dict[str, float]]) -> profiles.Fit:
        times = {name: sum(costs[kind] * n for kind, n in units.items()) for name, units in counts.items()}
        return fit(counts, KNOWN.cost_ns, None, times)

    assert found(phases).cost_ns["made_node"] == pytest.approx(costs["made_node"], rel=0.05)
    assert found(phases).cost_ns["node"] == pytest.approx(costs["node"], rel=0.3), "the known host draws it a little"
    assert found(steps).cost_ns["node"] > 2 * costs["node"]
    assert set(found(phases).errors) == set(steps), "a step's time is what matters, not that of its parts"


def test_short_phases_do_not_decide() -> None:
    """All programs end with dropping gradients: it is no reason to take functions for dear in their long parts."""
    counts = {f"p{i}: forward": {"frame": 1e5} for i in range(4)} | {
        f"p{i}: zero_grad": {"frame": 100.0} for i in range(4)
    }
    times = {name: (3.0 if "zero_grad" in name else 1.0) * units["frame"] * 300.0 for name, units in counts.items()}
    assert fit(counts, KNOWN.cost_ns, None, times).cost_ns["frame"] == pytest.approx(300.0, rel=0.05)


def test_a_host_measured_before_a_kind_was_counted(tmp_path: Path) -> None:
    """The time that such work took then is in other kinds' costs."""
    path = tmp_path / "host.toml"
    later = ("hot_launch", "made_node", "freed_block", "value_op")
    lines = profiles.path_of("xeon-h200").read_text().splitlines(keepends=True)
    path.write_text("".join(line for line in lines if line.split(" = ")[0] not in later))
    costs = profiles.load_host(path).cost_ns
    assert [costs[kind] for kind in later] == [KNOWN.cost_ns["launch"], 0.0, 0.0, KNOWN.cost_ns["op"]]
    assert list(costs) == list(KNOWN.cost_ns)


def test_operators_alone_say_nothing_about_calls() -> None:
    """A launch in a loop over a few operators takes half of what it does in a training step."""
    costs, counts = other_host(), programs(80)
    loops = {f"loop{i}": {"op": 500.0 + 50 * i, "launch": 300.0} for i in range(8)}
    detached = timed(counts, costs, profiles.WORK_KINDS) | timed(loops, costs, ("op",))
    real = timed(counts, costs, KINDS) | timed(loops, costs | {"launch": costs["launch"] / 3}, ("op", "launch"))
    alone = fit(counts, KNOWN.cost_ns, real, detached).cost_ns
    told = fit(counts | loops, KNOWN.cost_ns, real, detached, list(loops)).cost_ns
    assert told["launch"] == pytest.approx(alone["launch"])
    assert told["op"] == pytest.approx(costs["op"], rel=0.05)
    only = fit(loops, KNOWN.cost_ns, real, detached, list(loops)).cost_ns
    assert {kind: only[kind] for kind in profiles.CALL_KINDS} == pytest.approx(
        {kind: KNOWN.cost_ns[kind] for kind in profiles.CALL_KINDS}
    )
