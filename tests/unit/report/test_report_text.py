"""The report as people read it: the verdict first, then tables and warnings."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from phantora_async.figures import TIME_ACCOUNTS
from phantora_async.report import terminal_report

from ..virtual_time.scripted import Script, scripts
from .test_report import document, train


def test_the_text_is_plain_where_it_is_no_terminal() -> None:
    text = terminal_report(document(*[train(script, 6, marked=True) for script in scripts(2)]))
    assert "\x1b" not in text
    lines = text.splitlines()
    assert "2 x h200 on 1 server (dgx-h200)" in text
    assert sum(line.split()[:2] in (["0", "62.5%"], ["1", "62.5%"]) for line in lines) == 2  # compute
    assert not [line for line in lines if line != line.rstrip()]


def test_the_verdict_comes_first() -> None:
    """Does it fit, how long does a step take, what binds it and how sure is that?"""
    report = document(*[train(script, 6, marked=True) for script in scripts(2)])
    simulated = report["simulated"]
    for rank in simulated["ranks"]:
        rank["memory"] |= {"allocated_peak_nbytes": 3 << 20, "reserved_peak_nbytes": 4 << 20}
    parts = {"parameters": 3 << 20, "cached or fragmented": 1 << 20}
    simulated["memory"] |= {
        "max_allocated_nbytes": 3 << 20,
        "least_allocated_nbytes": 3 << 20,
        "verdict": {"fits": True, "rank": 1, "needed_nbytes": 4 << 20, "left_nbytes": 79 << 30, "failures": 0},
        "fullest": {"rank": 1, "parts": parts, "holders": []},
        "total_nbytes": 80 << 30,
    }
    simulated["work"] |= {"flops": 1.0, "tflops_per_gpu": 400.0, "mfu": 0.4, "unknown_share": 0.2}
    simulated["logged"] = [{"rank": 0, "window": "steps", "rate": "tokens/s", "value": 9.0, "text": "9 tokens/s"}]
    simulated["cost_sources"] |= {"gpu_ns": 9, "measured": 0.75, "interpolated": 0.0, "roofline": 0.25}
    memory, step, bound = terminal_report(report).splitlines()[:3]
    assert memory == (
        "memory: fits: rank 1 needs 4.0 MiB, the allocator's cache included, of 80.00 GiB; 79.00 GiB are left"
    )
    assert step.startswith("a step takes 1.6 µs (median of steps 4 to 6); 90% interval: 1.")
    assert step.endswith(
        "; 400.0 TFLOP/s per GPU, MFU 40.0% without kernels of 20% of the GPU time, whose FLOPs are not known; "
        "the script logged 9 tokens/s"
    )
    assert bound == (
        "bound by GPU computation (compute 62.5%, transfer 37.5%); kernel times: 75.0% measured, 25.0% modelled"
    )
    for rank in simulated["ranks"]:
        rank |= {"compute_ns": 10, "transfer_ns": 8, "peers_ns": 9, "host_bound_ns": 0, "idle_ns": 0}
    assert "bound by communication (" in terminal_report(report)
    simulated["step"]["interval"]["bound"] = "host"
    assert "bound by the host (" in terminal_report(report)


def test_what_binds_is_what_would_help() -> None:
    """The critical path decides where it is known: a GPU that is busy all the time may still wait for its host."""
    report = document(*[train(script, 6, marked=True) for script in scripts(2)])
    simulated = report["simulated"]
    simulated["step"]["interval"]["bound"] = "both"
    assert "bound by GPU computation (compute" in terminal_report(report)
    simulated["reasons"] = {
        "missing": "",
        "step": 4,
        "ns": 1000,
        "run_ns": 1000,
        "parts": [],
        "kernels": {"path": [], "gpu": []},
        "collectives": {"path": [], "gpu": []},
        "what_if": [{"resource": "GPU compute", "ns": 1000}, {"resource": "host", "ns": 900}],
    }
    assert "bound by the host: twice as fast, that saves 10.0% of the step (GPUs' time: compute" in terminal_report(
        report
    )
    simulated["reasons"]["what_if"][1]["ns"] = 990
    assert "bound by no resource alone: twice as fast, none saves more than 1.0% of" in terminal_report(report)
    simulated["reasons"]["missing"] = "too many kernels"
    assert "bound by GPU computation (compute" in terminal_report(report)


def test_without_reasons_the_host_s_work_against_the_step_decides() -> None:
    """A GPU that computes for 80 % of the step cannot shorten it below what its host needs."""
    report = document(*[train(script, 6, marked=True) for script in scripts(2)])
    times = {"compute_ns": 80, "transfer_ns": 0, "peers_ns": 0, "host_bound_ns": 20, "idle_ns": 0, "window_ns": 100}
    for host_work_ns, words in (
        (10, "bound by GPU computation (compute 80.0%"),
        (
            70,
            "bound by the host and GPU computation alike: the host's work takes 70% of the step, so faster GPUs or "
            "links save 30% at most (compute 80.0%",
        ),
        (95, "bound by the host: its work takes 95% of the step, the GPU's 80% of the step (compute 80.0%"),
    ):
        for rank in report["simulated"]["ranks"]:
            rank |= times | {"host_work_ns": host_work_ns}
        assert words in terminal_report(report)


def test_a_gpu_that_mostly_copies_is_not_bound_by_computation() -> None:
    """The host's work is short. Where copies take no time, tables say nothing of them."""
    report = document(*[train(script, 6, marked=True) for script in scripts(2)])
    assert "copies" not in terminal_report(report)
    times = dict.fromkeys((one.ns for one in TIME_ACCOUNTS), 0) | {"compute_ns": 30, "copies_ns": 60}
    for rank in report["simulated"]["ranks"]:
        rank |= times | {"host_bound_ns": 10, "window_ns": 100, "host_work_ns": 10}
    text = terminal_report(report)
    assert "bound by copies to and from the GPU (compute 30.0%, copies 60.0%, host-bound 10.0%)" in text
    assert "rank  compute  copies  transfer" in text
    for rank in report["simulated"]["ranks"]:
        del rank["copies_ns"]  # as a version that booked them as computing has written it
    assert "bound by GPU computation (compute 75.0%, host-bound 25.0%)" in terminal_report(report)


def test_assumed_work_is_named_beside_the_step_time() -> None:
    report = document(*[train(script, 6, marked=True) for script in scripts(2)])
    reasons = [
        {"reason": "a mask", "signatures": 2, "example": "x", "share": 0.3},
        {"reason": "a name", "signatures": 1, "example": "y", "share": 0.04},
    ]
    sources = report["simulated"]["cost_sources"]
    sources |= {"gpu_ns": 9, "unrecognised": 0.34, "unrecognised_signatures": reasons}
    step = next(line for line in terminal_report(report).splitlines() if line.startswith("a step takes"))
    assert "; 34% of the GPU time is assumed (a mask), and the interval is wider for it" in step
    sources["unrecognised"] = 0.01
    assert "is assumed" not in terminal_report(report)


def test_uneven_steps_are_told_beside_their_median() -> None:
    report = document(*[train(script, 6, marked=True) for script in scripts(2)])
    assert "in the mean" not in terminal_report(report)
    report["simulated"]["step"] |= {"median_ns": 2000, "mean_ns": 6800, "min_ns": 1900, "max_ns": 100_000}
    assert "a step takes 2.0 µs (median of steps 4 to 6), 6.8 µs in the mean: 1.9 µs to 100.0 µs; " in (
        terminal_report(report)
    )


def test_a_network_with_queues_says_what_fills_them() -> None:
    report = document(*[train(script, 6, marked=True) for script in scripts(2)])
    assert "queues" not in terminal_report(report)
    report["simulated"]["congestion"] = "dcqcn"
    text = " ".join(terminal_report(report).split())
    assert "links have queues (dcqcn): transfers between two ranks fill them" in text
    assert "the hops of a collective go at one rate, wait in queues, but fill none" in text


def test_one_collective_is_one() -> None:
    report = document(*[train(script, 6, marked=True) for script in scripts(2)])
    for count, words in ((1, "simulated, 1 collective"), (0, "simulated, 0 collectives")):
        report["simulated"]["collectives"] = count
        assert any(line.endswith(words) for line in terminal_report(report).splitlines())


def test_memory_that_does_not_suffice_is_said_before_the_failure() -> None:
    report = document(*[train(script, 6, marked=True) for script in scripts(2)])
    report |= {"exit_code": 1, "failure": {"text": "rank 1: OutOfMemoryError\n  rank 0 waits"}}
    missing = {"fits": False, "rank": 1, "needed_nbytes": 85 << 30, "missing_nbytes": 5 << 30, "asked_nbytes": 8 << 30}
    report["simulated"]["memory"] |= {
        "max_allocated_nbytes": 77 << 30,
        "total_nbytes": 80 << 30,
        "verdict": missing,
        "fullest": {"rank": 1, "parts": {}, "holders": []},
    }
    first, second, third, fourth, fifth, *_ = terminal_report(report).splitlines()
    assert first.startswith(
        "memory: does not fit: rank 1 asked for 8.00 GiB and needed at least 85.00 GiB of 80.00 GiB"
    )
    assert second == "The run failed with exit code 1: rank 1: OutOfMemoryError"
    assert third.startswith("until then: a step takes")
    assert fourth.startswith("bound by")
    assert fifth == "  rank 0 waits"
    assert terminal_report(report).count("does not fit") == 1


def test_details_are_for_those_who_ask() -> None:
    report = document(*[train(script, 6, marked=True) for script in scripts(8)])
    report["simulated"]["warnings"] = [{"text": "look here", "ranks": [0], "count": 1}]
    kernel = {"source": "roofline", "bound": "memory", "launches": 3, "mean_ns": 2000}
    report["simulated"]["kernels"] |= {
        "gpu_ns": 9000,
        "signatures": [kernel | {"title": f"kernel {number}"} for number in range(30)],
        "ranks": [],
    }
    short, whole = terminal_report(report), terminal_report(report, verbose=True)
    assert len(short.splitlines()) <= 25
    assert short.splitlines()[:3] == whole.splitlines()[:3]
    assert "warning (rank 0): look here" in short
    assert "25 others" in short
    for detail in ("simulator: ", "steps from: optimizer markers", "interval from: kernel times +-"):
        assert detail in whole
        assert detail not in short
    assert "10 others" in whole


def test_rows_of_gpu_work_that_would_read_the_same_are_one() -> None:
    report = document(*[train(script, 6, marked=True) for script in scripts(2)])
    kernel = {"title": "gemm 4096^3", "source": "measured", "bound": "compute"}
    report["simulated"]["kernels"] |= {
        "window": "steps",
        "gpu_ns": 9000,
        "signatures": [
            kernel | {"launches": 3, "mean_ns": 2000},
            kernel | {"launches": 1, "mean_ns": 6000},
            kernel | {"launches": 4, "mean_ns": 1000, "source": "roofline"},
        ],
        "ranks": [],
    }
    rows = [line.split()[:6] for line in terminal_report(report).splitlines() if "gemm" in line]
    # Of three steps of two GPUs.
    assert rows == [
        ["75.0%", "2.0", "µs", "0.7", "3.0", "µs"],
        ["25.0%", "0.7", "µs", "0.7", "1.0", "µs"],
    ]


def test_names_are_cut_on_narrow_terminals_only(monkeypatch: pytest.MonkeyPatch) -> None:
    report = document(*[train(script, 6, marked=True) for script in scripts(2)])
    kernel = {"title": "x" * 300, "source": "measured", "bound": "compute", "launches": 3, "mean_ns": 2000}
    report["simulated"]["kernels"] |= {"gpu_ns": 9000, "signatures": [kernel], "ranks": []}
    assert "x" * 300 in terminal_report(report)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("LINES", "50")
    for columns, cut in (("400", False), ("100", True)):
        monkeypatch.setenv("COLUMNS", columns)
        assert ("x" * 300 in terminal_report(report)) is not cut


def test_another_mfu_in_the_script_s_log_is_explained() -> None:
    report = document(*[train(script, 6, marked=True) for script in scripts(2)])
    simulated = report["simulated"]
    simulated["work"] |= {"flops": 1.0, "tflops_per_gpu": 400.0, "mfu": 0.4, "peak_tflops": 1000.0}
    simulated["step"]["median_ns"] = 500_000_000
    names = {"title": "", "source": "measured", "share": 0.5, "mean_ns": 1}
    simulated["kernels"]["signatures"] = [
        names | {"launches": 9, "flops": 1e12, "model": "gemm bf16"},
        names | {"launches": 1, "flops": 1e12, "model": "attention bwd"},
    ]

    def lines(rate: float, mfu: float) -> list[str]:
        said = {"rank": 0, "window": "steps"}
        simulated["logged"] = [
            said | {"rate": "TFLOP/s", "value": rate, "text": f"{rate} TFLOP/s"},
            said | {"rate": "MFU", "value": mfu, "text": f"MFU {mfu}%"},
        ]
        lines = terminal_report(report, verbose=True).splitlines()
        return [line for line in lines if "script logged in" in line or "TFLOP a GPU" in line]

    logged, why = lines(300.0, 30.0)
    assert logged == "rank 0's script logged in steps 4 to 6: 300.0 TFLOP/s, MFU 30.0%"
    assert why.startswith(
        "the report counts 200.0 TFLOP a GPU and step (gemm 90%, attention 10%), the script's 300 TFLO"
    )
    assert "are 150.0 in that time" in why
    assert why.endswith("; peak 1000.0 TFLOP/s (bf16, dense)")
    assert lines(300.0, 60.0)[1].endswith("; peak 1000.0 TFLOP/s (bf16, dense), the script's 500.0")
    assert len(lines(400.0, 40.0)) == 1


def test_a_run_without_gpus_says_so_first() -> None:
    idle = [Script(rank, 2).advance(5).step().advance(5).step().advance(5).step().bye() for rank in range(2)]
    report = document(*idle)
    assert report["simulated"]["gpu_use"] == {"unused_ranks": [0, 1], "causes": []}
    report["simulated"]["gpu_use"]["causes"] = [{"text": "--cpu asks for the CPU", "ranks": [0, 1]}]
    lines = terminal_report(report).splitlines()
    assert lines[0].startswith("NO EMULATED GPU WAS USED")
    assert lines[1] == "likely cause: --cpu asks for the CPU (ranks 0-1)"
    assert not [line for line in lines if "a step takes" in line or "interval" in line or line.startswith("rank ")]


def test_ranks_without_a_gpu_are_named() -> None:
    one, two = scripts(2)
    report = document(one.segment(1000).step().segment(1000).step().sync().bye(), two.advance(5).bye())
    text = terminal_report(report)
    assert any(line.startswith("2 x h200") for line in text.splitlines())
    assert text.startswith("memory: no use of GPU memory was reported")
    assert "warning: rank 1 used no emulated GPU; their shares are empty" in text


def test_many_ranks_are_summed_up() -> None:
    report = document(*[train(script, 6, marked=True) for script in scripts(3)])
    rank = report["simulated"]["ranks"][0]
    rank["memory"] = dict.fromkeys(rank["memory"], 1 << 30)
    report["simulated"]["ranks"] = [rank | {"rank": number, "compute_ns": 3000 + number} for number in range(256)]
    text = terminal_report(report)
    rows = [line.split()[0] for line in text.splitlines()[3:] if "GiB" in line]
    assert rows == ["min", "median", "max", "255", "254", "253"]


def test_warnings_are_shown_but_not_all() -> None:
    report = document(train(scripts(1)[0], 6, marked=True))
    report["simulated"]["warnings"] = [{"text": f"call {n} [x]", "ranks": [3, 4], "count": 2} for n in range(12)]
    text = terminal_report(report)
    assert "warning (2 ranks, first 3): call 9 [x]" in text
    assert "2 more warnings" in text


@pytest.mark.parametrize("mirrored", [0, 2])
def test_that_nothing_checks_mirrored_ranks_is_said_where_there_are_any(mirrored: int) -> None:
    report = document(train(scripts(1)[0], 6, marked=True))
    counts = {"processes": 4 - mirrored, "ranks": 4, "representatives": 4 - mirrored, "mirrored": mirrored}
    report["folding"] = counts | {"mesh": "dp=4", "timelines": 4, "apart": [], "witnesses": [], "warnings": []}
    text = terminal_report(report)
    assert f"{mirrored} were mirrored" in text
    assert ("nothing checks that mirrored ranks would have done the same" in text) is (mirrored > 0)


def test_work_that_is_not_recognised_and_takes_no_time_is_one_line() -> None:
    report = document(*[train(script, 6, marked=True) for script in scripts(3)])

    def of(share: float, reason: str) -> dict[str, Any]:
        return {"reason": reason, "signatures": 2, "example": f"kernel;{reason}", "share": share}

    report["simulated"]["cost_sources"]["unrecognised_signatures"] = [
        of(0.004, "tiny"),
        of(0.03, "three"),
        of(0.001, "less"),
        of(0.2, "a fifth"),
    ]
    lines = [line for line in terminal_report(report).splitlines() if "not recognised" in line]
    of_run = "of the GPU time in the whole run"
    assert lines == [
        f"warning: 2 cost signatures are not recognised (a fifth) and estimated, 20% {of_run}: kernel;a fifth",
        f"warning: 2 cost signatures are not recognised (three) and estimated, 3% {of_run}: kernel;three",
        f"4 cost signatures are not recognised and estimated, 0.5% {of_run}; the JSON report lists them",
    ]
