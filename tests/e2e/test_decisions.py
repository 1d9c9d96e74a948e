"""Lines that decide by values that nobody computed are told, those that only tell such values are not."""

from __future__ import annotations

from pathlib import Path

import pytest

from .conftest import Run

pytestmark = pytest.mark.torch
SCRIPT = Path(__file__).parent / "scripts" / "decisions.py"


@pytest.mark.versions
def test_each_deciding_line_is_told_once_and_its_reads_are_counted(run: Run) -> None:
    done = run("decisions.py", n=1)
    assert done.exit_code == 0, done.output + done.log(0)
    lines = SCRIPT.read_text().splitlines()
    expected = {n for n, line in enumerate(lines, 1) if line.endswith("# decides")}
    places = [int(warning["text"].split(":")[1].split()[0]) for warning in done.simulated["warnings"]]
    assert sorted(places) == sorted(expected)
    decided = {int(one["place"].split(":")[1]): one["reads"] for one in done.simulated["decided"]}
    assert set(decided) == expected
    assert done.simulated["overflow_checks"] == 4
    key = next(n for n, line in enumerate(lines, 1) if "key=lambda" in line)
    assert decided[key] == 3
    text = next(w["text"] for w in done.simulated["warnings"] if f":{key} " in w["text"])
    assert f"--value {SCRIPT}:{key}=EXPRESSION" in text or f"scripts/decisions.py:{key}=EXPRESSION" in text
    assert f"at {len(expected)} lines" in done.output
