"""One table of time accounts, for virtual time, reports, pages, pictures and the API."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import pytest

from phantora_async.api.results import Rank
from phantora_async.figures import TIME_ACCOUNTS, Shares, Unit, has_steps

ROOT = Path(__file__).parents[3]
ENGINE = ROOT / "phantora_async" / "virtual_time" / "native"
NAMES_ALL = {
    "phantora_async/api/results.py",  # a field for each account, which users type
    "phantora_async/figures/time_accounts.py",
    "phantora_async/virtual_time/native/devices.c",  # where an instant is booked
}
"""The source files that name every account: those that a new account touches."""


def test_shares_are_the_accounts_and_what_overlaps_them() -> None:
    assert Shares._fields == (*(account.ns for account in TIME_ACCOUNTS), "communication_ns")


def test_the_engine_books_as_many_in_the_same_order() -> None:
    header, books = (ENGINE / "engine.h").read_text(), (ENGINE / "devices.c").read_text()
    assert f"ACCOUNTS = {len(TIME_ACCOUNTS)}," in header
    assert f"SHARES = {len(Shares._fields)}," in header
    order = re.search(r"enum \{ (COMPUTE, .*) \};", books)
    assert order is not None
    names = [name.lower().removesuffix("_time") for name in order[1].split(", ")]
    assert names == [*(account.name for account in TIME_ACCOUNTS), "communication"]


def test_a_rank_of_the_api_has_a_field_for_each() -> None:
    assert {account.name for account in TIME_ACCOUNTS} <= {field.name for field in dataclasses.fields(Rank)}


def test_a_new_account_touches_three_files() -> None:
    words = [re.compile(rf"(?<!--)\b{account.name}(_ns|_time)?\b", re.IGNORECASE) for account in TIME_ACCOUNTS]
    files = [file for kind in ("py", "c", "h", "js", "css") for file in (ROOT / "phantora_async").rglob(f"*.{kind}")]
    texts = {file.relative_to(ROOT).as_posix(): file.read_text() for file in files}
    found = {path for path, text in texts.items() if all(word.search(text) for word in words)}
    assert found == NAMES_ALL


@pytest.mark.parametrize(
    ("unit", "value", "text"),
    [
        (Unit.SECONDS, 0.0271596, "27.16 ms"),
        (Unit.BYTES, 3 * 2**29, "1.50 GiB"),
        (Unit.BYTES, 2**20, "1.00 MiB"),
        (Unit.SHARE, 0.4567, "45.7%"),
        (Unit.RATE, 300.46, "300.5"),
        (Unit.RATE, 75588.4, "75,588"),
    ],
)
def test_values_have_their_units(unit: Unit, value: float, text: str) -> None:
    assert unit.text(value) == text


def test_a_run_without_steps_has_no_step() -> None:
    assert has_steps({"source": "optimizer markers on rank 0"})
    assert not has_steps({"source": "the whole run: one step was found"})
