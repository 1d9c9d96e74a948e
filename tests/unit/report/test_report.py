"""The report: steps found one way or another, shares, and text that reads well."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emu.contract import records
from phantora_async.ingest.fact_builder import FactBuilder, WarningCount
from phantora_async.ingest.launch_counts import LaunchCounts
from phantora_async.over_time import LEAST_PARTS, LinkTraffic
from phantora_async.report import Document, Seen, build, simulator, terminal_report, text, to_json
from phantora_async.report.kernels import together, window_counts
from phantora_async.report.simulator import Usage
from phantora_async.report.steps import period, step_document, why_untimed
from phantora_async.run_spec import RunSpec
from phantora_async.virtual_time import Timeline
from profiles import load_cluster, load_gpu, load_host

from ..virtual_time.programs import MOST, Ahead, Program, eager, network, never, on_demand, programs, write
from ..virtual_time.programs import play as play_program
from ..virtual_time.scripted import Script, new_fact_builder, play, scripts


def seen(timeline: Timeline) -> Seen:
    """Returns what is seen without a network."""
    return Seen(
        timeline.snapshot(), timeline.activity(), timeline.generation(), LinkTraffic(LEAST_PARTS).traffic([]), []
    )


def spec(world_size: int) -> RunSpec:
    cluster = load_cluster("dgx-h200")
    return RunSpec(
        socket=Path("s"),
        cost_table=Path("c"),
        run_dir=Path("r"),
        servers=(world_size,),
        gpu=load_gpu("h200"),
        cluster=cluster,
        host=load_host(cluster.host),
        host_mode="modelled",
    )


def document(*played: Script) -> dict[str, Any]:
    result = play(played, duration_ns=lambda collective: 300)
    report = build(spec(len(played)), seen(result.timeline), new_fact_builder(len(played)), Usage())
    return json.loads(to_json(report))  # type: ignore[no-any-return]


def train(script: Script, steps: int, *, marked: bool) -> Script:
    for step in range(steps):
        script.segment(1000 if step else 5000, after=10)
        ready = script.record()
        script.wait(ready, stream=2).all_reduce(8).all_reduce(16)
        done = script.record(stream=2)
        script.wait(done, stream=1)
        if marked:
            script.step()
    return script.sync().bye()


def test_steps_are_measured_between_completions_of_their_work() -> None:
    (script,) = scripts(1)
    step = document(train(script, 5, marked=True))["simulated"]["step"]
    assert step["each_ns"] == [1600] * 4
    assert (step["warm_up"], step["counted"], step["median_ns"]) == (2, 2, 1600)
    assert (step["first_listed"], step["first_counted"], step["last_counted"]) == (2, 4, 5)  # step 1 is not timed
    assert step["host_median_ns"] == 10  # the host runs ahead


def test_steps_of_two_optimizers_are_told_in_turn() -> None:
    def trained(*lengths: int) -> dict[str, Any]:
        script = Script(0, 1)
        for length in lengths:
            script.segment(length).step()
        return step_document(play([script.sync().bye()]).timeline.snapshot())

    assert trained(9000, *[1000, 3000] * 5)["turn_ns"] == [1000, 3000]
    from_the_fourth = [1000, 2000, 1000, 3000]
    assert trained(9000, *[1000, 3000, 1000, 2000] * 4)["turn_ns"] == from_the_fourth
    assert trained(9000, *[1000, 1100] * 5)["turn_ns"] == [], "one kind of steps"
    assert trained(9000, 1000, 1000, 1000, 3000, 1000, 3000)["turn_ns"] == [], "too few to tell"
    assert trained(9000, *[1000, 3000, 5000, 2000, 4000, 1000, 1000] * 2)["turn_ns"] == []


def test_without_markers_steps_follow_the_period_of_collectives() -> None:
    (script,) = scripts(1)
    step = document(train(script, 8, marked=False))["simulated"]["step"]
    assert step["source"] == "period of rank 0's collectives"
    assert step["median_ns"] == 1600


def test_without_either_the_whole_run_is_reported() -> None:
    script = Script(0, 1).segment(1234).sync().bye()
    step = document(script)["simulated"]["step"]
    assert step["source"].startswith("the whole run")
    assert step["median_ns"] == 1234


def test_one_step_has_no_length() -> None:
    script = Script(0, 1).segment(1234).step().sync().bye()
    step = step_document(play([script]).timeline.snapshot())
    assert step["source"] == "the whole run: one step was found, and two are needed, as the first is not timed"
    assert why_untimed(step) == "one step was found, and two are needed, as the first is not timed"
    none = Script(0, 1).segment(1234).sync().bye()
    assert why_untimed(step_document(play([none]).timeline.snapshot())) == "no steps were found"


@pytest.mark.parametrize(
    ("numbers", "expected"), [([1, 2, 3] * 4, 3), ([1, 2, 3, 1, 2], 3), ([1, 1, 1], 1), ([1, 2, 3, 4], 4), ([], 0)]
)
def test_periods(numbers: list[int], expected: int) -> None:
    assert period(numbers) == expected


def test_shares_of_a_rank_fill_its_window() -> None:
    world = [train(script, 6, marked=True) for script in scripts(3)]
    for rank in document(*world)["simulated"]["ranks"]:
        assert (rank["window"], rank["counted_steps"]) == ("steps", [4, 6])
        parts = [rank[key] for key in ("compute_ns", "transfer_ns", "peers_ns", "host_bound_ns", "idle_ns")]
        assert sum(parts) == rank["window_ns"] == 3 * 1600
        assert (rank["compute_ns"], rank["transfer_ns"]) == (3000, 1800)
        assert rank["communication_ns"] == 1800


def test_what_is_simulated_is_the_same_twice() -> None:
    one, two = (document(*[train(script, 6, marked=True) for script in scripts(2)]) for _ in range(2))
    assert one["simulated"] == two["simulated"]
    assert one["schema"] == 1


def test_one_window_for_the_kernels_of_all_ranks() -> None:
    """A rank without steps, or whose counts at its last step's end are gone: sums are of the whole run for all."""
    one, two = scripts(2)
    result = play((train(one, 6, marked=True), train(two, 6, marked=True)), duration_ns=lambda collective: 300)
    ranks = result.timeline.snapshot().ranks

    def launched(steps: int) -> LaunchCounts:
        counts = LaunchCounts()
        for _ in range(steps):
            told = records.LaunchCounts.encode(0, 1, 0, payload=records.LaunchCount.encode(1, 10, 0, 0))
            counts.add(0, records.decode_up(told)[0][0], lambda rank, key: None)
            counts.step_ended(reached=steps)
        return counts

    window, counted = window_counts(ranks, [launched(6), launched(6)])
    assert (window, [one.counts[1].launches for one in counted]) == ("steps", [30, 30])
    shared = launched(6)
    counted = window_counts(ranks, [shared, shared]).ranks
    assert [(found[1].launches, times) for found, times in together(one.counts for one in counted)] == [(30, 2)]
    window, counted = window_counts(ranks, [launched(6), launched(7)])
    assert (window, [one.counts[1].launches for one in counted]) == ("run", [60, 70])


def test_memory_of_a_process_that_has_ended_is_not_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    used = {11: 30_000_000, 12: 0}
    monkeypatch.setattr(simulator.psutil, "Process", lambda pid: SimpleNamespace(memory_full_info=lambda: told(pid)))

    def told(pid: int) -> SimpleNamespace:
        return SimpleNamespace(uss=used[pid])

    usage = Usage()
    for rank, pid in enumerate(used):
        usage.add_rank(rank, pid)
        usage.goodbye(rank)
    private = usage.document()["rank_private_nbytes"]
    assert (private["median"], private["max"], private["ranks"]) == (30_000_000, 30_000_000, 1)


@pytest.mark.parametrize(
    ("ahead", "examples"),
    [(eager, 10), *(pytest.param(ahead, 30, marks=pytest.mark.thorough) for ahead in (never, eager, on_demand))],
)
def test_building_a_report_changes_nothing(ahead: Ahead, examples: int) -> None:
    """Built twice at every stop of a run, or only at its end: the last one is the same."""

    @settings(max_examples=examples)
    @given(size=st.integers(1, MOST), program=programs, seed=st.integers(0, 2**32))
    def check(size: int, program: Program, seed: int) -> None:
        def simulated(timeline: Timeline, fact_builder: FactBuilder) -> Document:
            found: Document = build(spec(size), seen(timeline), fact_builder, Usage())["simulated"]
            return found

        def build_twice(timeline: Timeline, fact_builder: FactBuilder) -> None:
            assert simulated(timeline, fact_builder) == simulated(timeline, fact_builder)

        one = play_program(write(size, program, 20_000), network, seed, ahead, 8, build_twice)
        other = play_program(write(size, program, 20_000), network, seed, ahead, 8)
        assert simulated(one.timeline, one.fact_builder) == simulated(other.timeline, other.fact_builder)

    check()


def test_only_so_many_warnings_are_listed() -> None:
    (script,) = scripts(1)
    result = play((train(script, 3, marked=True),), duration_ns=lambda collective: 300)
    fact_builder = new_fact_builder(1)
    for number in range(700):
        fact_builder.warnings[f"warning {number:04d}"] = WarningCount({0: 1})
    report = build(spec(1), seen(result.timeline), fact_builder, Usage())
    simulated = json.loads(to_json(report))["simulated"]
    assert len(simulated["warnings"]) == 500
    assert simulated["warnings"][-1]["text"] == "warning 0499"
    assert simulated["warnings_left_out"] == 200
    assert "690 more warnings" in terminal_report(report)


def test_a_slow_host_that_stays_behind_the_step_makes_it_nearly_host_bound() -> None:
    report = document(*(train(script, 5, marked=True) for script in scripts(2)))
    step = report["simulated"]["step"]
    for more, words in ((-1, "a slow one nearly decides the step time: `"), (0, "a slow one decides the step time: `")):
        step["interval"] |= {"bound": "both", "host_low_ns": 1, "host_high_ns": step["median_ns"] + more}
        (line,) = (line for line in terminal_report(report).splitlines() if line.startswith("the host's work takes"))
        assert words in line


def test_the_report_names_what_bounds_a_kernel_and_what_a_host_bound_step_may_take() -> None:
    report = document(*(train(script, 5, marked=True) for script in scripts(2)))
    simulated = report["simulated"]
    simulated["kernels"] |= {
        "window": "steps",
        "gpu_ns": 9000,
        "signatures": [
            {"title": "a product", "source": "roofline", "bound": "compute", "launches": 3, "mean_ns": 2000},
            {"title": "a fill", "source": "unrecognised", "bound": "latency", "launches": 1_000_000, "mean_ns": 1},
            {"title": "x" * 200, "source": "interpolated", "bound": "memory", "launches": 3, "mean_ns": 999_999},
        ],
        "ranks": [],
    }
    simulated["step"]["interval"] |= {"bound": "host", "host_low_ns": 21_000_000, "host_high_ns": 33_000_000}
    lines = terminal_report(report).splitlines()
    words = "the host's work takes 21.00 ms to 33.00 ms of a step, by how fast your host is: `phantora-async profile"
    assert any(line.startswith(words) for line in lines)
    (head,) = (line for line in lines if "the kernels that take most of it" in line)
    (product,) = (line for line in lines if "a product" in line)
    assert product[head.index("bound by") :].startswith("compute ")
    (fill,) = (line for line in lines if "a fill" in line)
    # Two GPUs have two steps each that count.
    assert fill.split()[1:] == ["250.0", "µs", "250,000", "0.0", "µs", "unrecognised", "latency", "a", "fill"]
    (long,) = (line for line in lines if "xxx" in line)
    assert long.split()[1:6] == ["750.0", "µs", "0.8", "1000.0", "µs"]


def test_what_had_no_room_to_be_kept_is_said() -> None:
    kept = {"peak_nbytes": 5_000_000, "limit_nbytes": 5_000_000, "refused_nbytes": 2_000_000}
    figures = {"wall_s": 1.0, "coordinator_cpu_s": 1.0, "coordinator_peak_rss_nbytes": 1, "rank_private_nbytes": None}
    said = text._simulator(figures | {"kept": kept})
    assert "for all ranks: 5 MB (limit 5 MB); 2 MB more were not kept and read as 0" in said


def test_a_path_that_is_not_utf_8_is_written() -> None:
    told = {"script": "a\udcff.py", "b": [1, None, {"c": ("x", 0.5)}]}
    assert json.loads(to_json(told)) == {"script": "a\\udcff.py", "b": [1, None, {"c": ["x", 0.5]}]}
