"""Lines that decide by values that nobody computed are told, those that only tell such values are not."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from .conftest import Finished, Run

pytestmark = pytest.mark.torch
SCRIPTS = Path(__file__).parent / "scripts"
SCRIPT = SCRIPTS / "decisions.py"


@pytest.mark.versions
def test_each_deciding_line_is_told_once_and_its_reads_are_counted(run: Run) -> None:
    done = run("decisions.py", n=2)
    assert done.exit_code == 0, done.output + done.log(0)
    lines = SCRIPT.read_text().splitlines()
    expected = {n for n, line in enumerate(lines, 1) if line.endswith("# decides")}
    places = [int(warning["text"].split(":")[1].split()[0]) for warning in done.simulated["warnings"]]
    assert sorted(places) == sorted(expected)
    decided = {int(one["place"].split(":")[1]): one["reads"] for one in done.simulated["decided"]}
    assert set(decided) == expected
    assert done.simulated["overflow_checks"] == 2 * 6
    key = next(n for n, line in enumerate(lines, 1) if "key=lambda" in line)
    assert decided[key] == 2 * 3
    text = next(w["text"] for w in done.simulated["warnings"] if f":{key} " in w["text"])
    assert f"--value {SCRIPT}:{key}=EXPRESSION" in text or f"scripts/decisions.py:{key}=EXPRESSION" in text
    assert f"at {len(expected)} lines" in done.output


def told(done: Finished, rank: int = 0) -> set[tuple[str, int]]:
    """Files and lines that warnings name."""
    assert done.exit_code == 0, done.output + done.log(rank)
    assert "PASSED" in done.log(rank)
    places = [re.search(r"(\w+\.py):(\d+)", warning["text"]) for warning in done.simulated["warnings"]]
    return {(place[1], int(place[2])) for place in places if place}


def test_decisions_in_nested_functions_other_threads_and_other_files(run: Run) -> None:
    files = ("handed_decisions.py", "judging.py", "followed_numbers.py")
    lines = [(file, n, line) for file in files for n, line in enumerate((SCRIPTS / file).open(), 1)]
    expected = {(file, n) for file, n, line in lines if line.rstrip().endswith("# decides")}
    options = ("--nproc-per-node", "1", "--isolation", "none")
    done = run(
        "side_by_side.py", "handed_decisions.py", "expressions.py known", "followed_numbers.py", n=3, options=options
    )
    assert told(done, 0) == told(done, 1) == told(done, 2) == expected, "nothing in expressions of known values"


def test_expressions_of_unknown_values_warn(run: Run) -> None:
    tree = ast.parse((SCRIPTS / "expressions.py").read_text())
    (decide,) = (node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == "decide")
    first, last = decide.lineno, decide.end_lineno or 0
    lines = {line for _, line in told(run("expressions.py", "unknown", n=1))}
    silent = [ast.unparse(one) for one in decide.body if not lines & {*range(one.lineno, (one.end_lineno or 0) + 1)}]
    assert silent == []
    assert all(first <= line <= last for line in lines)
