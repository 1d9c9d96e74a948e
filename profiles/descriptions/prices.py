"""Reads the prices of an hour of a GPU, by its name: a table in TOML, shipped or the user's own."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass

from profiles.descriptions.catalog import find
from profiles.descriptions.fields import read_fields

LISTED = "listed"
"""The name of the shipped table."""
CURRENCY = "currency"
MOST_PRICE = 1e9


@dataclass(frozen=True, slots=True)
class Price:
    """The price of one GPU for an hour."""

    low: float
    high: float
    currency: str
    source: str
    """The source of the price."""
    date: str


def load_prices(name_or_path: str | os.PathLike[str] = LISTED) -> Mapping[str, Price]:
    """The prices by the GPU's name. Raises UnknownProfile or ProfileError."""
    top = read_fields(find("price", name_or_path))
    currency = top.text(CURRENCY)
    found = {}
    for gpu in top.keys():  # noqa: SIM118 - Fields is no mapping
        if gpu == CURRENCY:
            continue
        table = top.table(gpu)
        low, high = (table.number(key, most=MOST_PRICE) for key in ("low", "high"))
        if low > high:
            raise table.error("low", f"{low:g} is more than high, {high:g}")
        found[gpu] = Price(low, high, currency, table.text("source"), table.text("date"))
    top.end()
    return found
