"""The lines on reasons, and a report whose part `reasons` is damaged."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from phantora_async.report import ReportError, read, terminal_report

from .test_reading import report, write


def with_reasons() -> dict[str, Any]:
    whole = report()
    part = {"kind": "compute", "name": "gemm bf16", "doing": "", "ns": 700_000}
    slow = {"kind": "straggler", "name": "rank 3", "doing": "host", "ns": 300_000}
    kernel = {"title": "gemm bf16 m=1", "family": "gemm bf16", "launches": 2, "gpu_ns": 9, "path_ns": 700_000}
    piece = {"rank": 0, "kind": "compute", "name": "gemm bf16", "start_ns": 0, "end_ns": 1_000_000}
    whole["simulated"]["reasons"] = {
        "missing": "",
        "step": 7,
        "ns": 1_000_000,
        "run_ns": 1_000_000,
        "parts": [part, slow],
        "path": [piece],
        "kernels": {"gpu": [kernel], "path": [kernel]},
        "collectives": {"gpu": [], "path": []},
        "what_if": [{"resource": "host", "ns": 750_000}, {"resource": "GPU memory", "ns": 1_000_000}],
    }
    return whole


def test_reasons_are_a_few_lines(tmp_path: Path) -> None:
    text = terminal_report(read(write(tmp_path, with_reasons())))
    assert "why step 7 takes 1.00 ms" in text
    assert "70.0%  compute: gemm bf16 70.0%" in text
    assert "30.0%  one rank works while half of the others or more wait for it: rank 3 (host) 30.0%" in text
    assert "longest on it: gemm bf16 m=1 70.0%" in text
    assert "host 0.75 ms (-25.0%); GPU memory 1.00 ms (no change)" in text


@pytest.mark.parametrize(
    ("with_links_ns", "told"),
    [(1_000_000, True), (990_001, True), (990_000, False), (900_000, False)],
)
def test_communication_that_links_do_not_decide(tmp_path: Path, with_links_ns: int, told: bool) -> None:
    """A fifth of the step is communication: links decide it if they save a twentieth of that or more."""
    whole = with_reasons()
    reasons = whole["simulated"]["reasons"]
    reasons["parts"].append({"kind": "communication", "name": "all_reduce", "doing": "", "ns": 200_000})
    reasons["what_if"].append({"resource": "links in servers", "ns": with_links_ns})
    text = terminal_report(read(write(tmp_path, whole)))
    assert "20.0%  communication that nothing hides: all_reduce 20.0%" in text
    assert ("the latency and the channels of NCCL decide, not links" in text) is told


def test_without_reasons_the_text_says_why(tmp_path: Path) -> None:
    whole = report()
    assert "reasons" not in terminal_report(whole)
    whole["simulated"]["reasons"] = {"missing": "ranks were started again"}
    assert "no reasons are given: ranks were started again" in terminal_report(read(write(tmp_path, whole)))


def test_reasons_that_lack_a_part_are_refused(tmp_path: Path) -> None:
    damaged = with_reasons()
    del damaged["simulated"]["reasons"]["parts"]
    with pytest.raises(ReportError, match=r"simulated\.reasons\.parts: missing"):
        read(write(tmp_path, damaged))
