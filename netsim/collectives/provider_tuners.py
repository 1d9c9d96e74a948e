"""Tuners of providers: tables of algorithms and protocols that NCCL takes in place of its own model's choice."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from itertools import pairwise
from math import log2

from formats.toml import read_toml
from netsim.errors import SpecError
from netsim.fields import FieldError, SpecTable

NCCLS_OWN = "nccl"
OPERATIONS = ("all_reduce", "all_gather", "reduce_scatter")

Way = tuple[str, str]
"""Algorithm and protocol."""


@dataclass(frozen=True, slots=True)
class Row:
    """The ways for one number of ranks: ``limits[i]`` is the largest message in bytes that takes ``ways[i]``."""

    ranks: int
    ways: tuple[Way, ...]
    limits: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class ProviderTuner:
    """The table of one provider's tuner; it has an opinion if each server has ``gpus`` members."""

    gpus: int
    rows: dict[str, tuple[Row, ...]]


def chosen(tuner: str, op: str, nbytes: int, ranks: int, nodes: int) -> Way | None:
    """The way that a tuner takes for a message of ``nbytes``; None if it leaves the choice to NCCL."""
    if tuner == NCCLS_OWN or nodes == 1:
        return None
    found = load_tuners()[tuner]
    rows = found.rows.get(op, ())
    if not rows or ranks != found.gpus * nodes or ranks < rows[0].ranks:
        return None
    ways, limits = _at(rows, ranks)
    return next((way for way, limit in zip(ways, limits, strict=False) if nbytes <= limit), ways[-1])


def _at(rows: Sequence[Row], ranks: int) -> tuple[tuple[Way, ...], tuple[float, ...]]:
    for low, high in pairwise(rows):
        if ranks < high.ranks:
            if low.ways != high.ways:
                return low.ways, low.limits
            share = log2(ranks / low.ranks) / log2(high.ranks / low.ranks)
            return low.ways, tuple(a * (b / a) ** share for a, b in zip(low.limits, high.limits, strict=True))
    return rows[-1].ways, rows[-1].limits


def _row(table: SpecTable) -> Row:
    ways = table.value("ways")
    limits = table.value("limits")
    if not (isinstance(ways, list) and all(isinstance(way, str) and len(way.split()) == 2 for way in ways)):
        raise table.error("ways", "expected a list of algorithms with their protocols, such as 'tree ll128'")
    if not (isinstance(limits, list) and len(limits) == len(ways) - 1 and limits == sorted(limits)):
        raise table.error("limits", "expected a growing list with one number less than ways")
    pairs = tuple((way.split()[0], way.split()[1]) for way in ways)
    return Row(table.integer("ranks", least=2), pairs, tuple(map(float, limits)))


@cache
def load_tuners() -> dict[str, ProviderTuner]:
    """All providers' tuners by name."""
    with resources.as_file(resources.files("netsim.collectives") / "tuners.toml") as path:
        source, values = read_toml(path, SpecError)
    try:
        top = SpecTable(values)
        found = {}
        for name in sorted(top.keys()):
            table = top.table(name)
            rows = {op: tuple(map(_row, table.tables(op))) for op in OPERATIONS}
            found[name] = ProviderTuner(table.integer("gpus", least=1), rows)
        top.end()
        return found
    except FieldError as error:
        raise SpecError(source.locate(error.field, error.problem)) from error
