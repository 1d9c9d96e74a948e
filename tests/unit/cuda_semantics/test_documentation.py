"""docs/data/cuda-rules.md and the tests name each other."""

from __future__ import annotations

import ast
import functools
import re
from pathlib import Path

from .test_capture import answers

HERE = Path(__file__).parent
TEXT = (HERE.parents[2] / "docs" / "data" / "cuda-rules.md").read_text()
EXACT_FROM_HERE = "\nAll rules below are simulated exactly.\n"
HEAD = ["rule", "source", "simulated", "test"]


def rows(text: str = TEXT) -> list[list[str]]:
    found = [
        [cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line.startswith("|")
    ]
    return [row for row in found if row != HEAD and set(row) != {"---"}]


@functools.cache
def shown() -> frozenset[str]:
    """Returns every test of this folder by its id, without parameters."""
    return frozenset(
        f"{path.name}::{node.name}"
        for path in HERE.glob("test_*.py")
        if path != Path(__file__)
        for node in ast.parse(path.read_text()).body
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
    )


def test_every_rule_has_a_source_a_verdict_and_a_test_that_exists() -> None:
    assert len(rows()) > 60
    for rule, source, simulated, test in rows():
        assert rule.endswith(".")
        assert re.match(r"PG |RT |H100|H200", source), rule
        assert re.match(r"exact|approximate|refused", simulated), rule
        name, _, parameter = test.strip("`").rstrip("]").partition("[")
        assert name in shown(), rule
        assert not parameter or parameter in answers(), rule


def test_rules_that_are_simulated_exactly_have_their_part_of_the_page() -> None:
    rough, _, exact = TEXT.partition(EXACT_FROM_HERE)
    assert [rule for rule, _, simulated, _ in rows(rough) if simulated.startswith("exact")] == []
    assert [rule for rule, _, simulated, _ in rows(exact) if not simulated.startswith("exact")] == []


def test_every_test_shows_a_rule() -> None:
    assert shown() == {test.strip("`").partition("[")[0] for *_, test in rows()}
