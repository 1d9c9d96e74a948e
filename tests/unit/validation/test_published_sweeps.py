"""Configurations of published tables: does a sweep find the order that was measured, and the best one?

Stored predictions of laboratory/programs/published/run.py; docs/data/sweep.md says what they show.
"""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

ROWS = [
    json.loads(line)
    for line in (Path(__file__).parents[3] / "laboratory/rows/published-sweeps.jsonl").read_text().splitlines()
]


def ranks(values: list[float]) -> list[int]:
    """Returns the rank of each of these distinct values."""
    assert len(set(values)) == len(values)
    ordered = sorted(values)
    return [ordered.index(value) for value in values]


def correlation(rows: list[dict[str, Any]]) -> float:
    """Returns Spearman's correlation of tokens a second."""
    published, predicted = (ranks([row["tokens_per_s_gpu"][of] for row in rows]) for of in ("published", "predicted"))
    count = len(rows)
    apart = sum((one - other) ** 2 for one, other in zip(published, predicted, strict=True))
    return 1 - 6 * apart / (count * (count**2 - 1))


def tables() -> dict[tuple[str, str], list[dict[str, Any]]]:
    found = defaultdict(list)
    for row in ROWS:
        found[row["source"], row["table"]].append(row)
    return found


def test_correlation_of_a_case_by_hand() -> None:
    """The last two of three are swapped: 1 - 6 x 2 / 24."""
    rows = [{"tokens_per_s_gpu": {"published": a, "predicted": b}} for a, b in ((1, 10), (2, 30), (3, 20))]
    assert correlation(rows) == 0.5


@pytest.mark.parametrize(
    ("table", "count"),
    [(("torchtitan", "1"), 3), (("llm-foundry", "H100 80GB BF16 (Large Scale, >= 128 GPUs)"), 18)],
)
def test_the_order_is_that_of_the_table(table: tuple[str, str], count: int) -> None:
    rows = tables()[table]
    assert len(rows) == count
    assert correlation(rows) == 1.0


def test_the_best_is_that_of_the_table() -> None:
    for rows in tables().values():
        best = [max(rows, key=lambda row: row["tokens_per_s_gpu"][of])["what"] for of in ("published", "predicted")]
        assert best[0] == best[1]


def test_what_ran_is_predicted_to_fit() -> None:
    assert [row["fits"]["predicted"] for row in ROWS] == [row["fits"]["published"] for row in ROWS] == [True] * 22
