"""Cases with exact answers computed by independent simulators."""

from __future__ import annotations

import gzip
import json
import os
from pathlib import Path

import pytest

from netsim.bench import __main__ as bench
from netsim.bench import cases

HERE = Path(__file__).parent / "cases"
MORE = os.environ.get("NETSIM_CASES", "")


@pytest.mark.parametrize("path", sorted(HERE.glob("*.json.gz")), ids=lambda p: p.name.removesuffix(".json.gz"))
def test_case_is_exact_in_order_and_late(path: Path) -> None:
    case = cases.read(path)
    for late in (False, True):
        assert bench.run(case, late, repeat=1).worst_ns < 0.01


@pytest.mark.skipif(not MORE, reason="set NETSIM_CASES to a folder of more cases to run them")
def test_all_cases_of_the_folder_named_in_the_environment() -> None:
    assert bench.main(["--cases", MORE, "--repeat", "1"]) == 0


def test_a_wrong_answer_is_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = cases.read(HERE / "ring_star_16.json.gz").spec
    data["completion_ns"][3] += 1.0
    with gzip.open(tmp_path / "wrong.json.gz", "wt") as file:
        json.dump(data, file)
    assert bench.main(["--cases", str(tmp_path), "--repeat", "1"]) == 1
    assert "1.00000" in capsys.readouterr().out


def test_what_is_not_a_case_is_said_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "x.json.gz").write_bytes(b"no gzip")
    assert bench.main(["--cases", str(tmp_path)]) == 1
    assert "not a network case" in capsys.readouterr().err


def test_the_benchmark_prints_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert bench.main(["--cases", str(HERE), "--only", "tiny_ls4_16", "--late", "--json", "--repeat", "1"]) == 0
    (line,) = capsys.readouterr().out.splitlines()
    result = json.loads(line)
    assert (result["case"], result["order"], result["flows"]) == ("tiny_ls4_16", "late", 60)
    assert result["rollbacks"] > 0
