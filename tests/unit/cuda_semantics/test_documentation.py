"""docs/cuda-semantics.md, docs/data/cuda-rules.md and the tests name each other."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from .test_capture import answers

HERE = Path(__file__).parent
DOCS = HERE.parents[2] / "docs"
DOCUMENTS = (DOCS / "cuda-semantics.md", DOCS / "data" / "cuda-rules.md")
"""The second has the rules that are simulated exactly."""
HEAD = ["rule", "source", "simulated", "test"]


def rows(documents: tuple[Path, ...] = DOCUMENTS) -> list[list[str]]:
    found = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for document in documents
        for line in document.read_text().splitlines()
        if line.startswith("|")
    ]
    return [row for row in found if row != HEAD and set(row) != {"---"}]


def shown() -> set[str]:
    """Every test of this folder by its id, without parameters."""
    return {
        f"{path.name}::{node.name}"
        for path in HERE.glob("test_*.py")
        if path != Path(__file__)
        for node in ast.parse(path.read_text()).body
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
    }


def test_every_rule_has_a_source_a_verdict_and_a_test_that_exists() -> None:
    assert len(rows()) > 60
    for rule, source, simulated, test in rows():
        assert rule.endswith(".")
        assert re.match(r"PG |RT |H100|H200", source), rule
        assert re.match(r"exact|approximate|refused", simulated), rule
        name, _, parameter = test.strip("`").rstrip("]").partition("[")
        assert name in shown(), rule
        assert not parameter or parameter in answers(), rule


def test_the_second_document_has_the_exact_rules() -> None:
    rough, exact = (rows((document,)) for document in DOCUMENTS)
    assert [rule for rule, _, simulated, _ in rough if simulated.startswith("exact")] == []
    assert [rule for rule, _, simulated, _ in exact if not simulated.startswith("exact")] == []


def test_every_test_shows_a_rule() -> None:
    assert shown() == {test.strip("`").partition("[")[0] for *_, test in rows()}
