"""Numbers that nobody computed: what is made of them is marked, too, and each use that decides is seen."""

from __future__ import annotations

import bisect
import collections
import copy
import functools
import heapq
import itertools
import json
import math
import operator
import pickle
import statistics
from collections.abc import Iterator
from typing import Any

import pytest

from emu.reads import marked
from emu.reads.marked import Mark, UnknownFloat, mark_of, plain

MODULES = {
    module.__name__: module
    for module in (bisect, collections, copy, functools, heapq, itertools, json, math, operator, statistics)
}
MARK = Mark("train.py:3", "float32", "0")


class _Noting:
    """Notes who decides."""

    def __init__(self) -> None:
        self.decided: list[Mark] = []
        self.left: list[bool] = []

    def decides(self, mark: Mark, *, orders: bool = False) -> None:
        self.decided.append(mark)

    def leaves(self, mark: Mark, *, counts: bool) -> None:
        self.left.append(counts)

    def result(self, value: Any, mark: Mark) -> Any:
        if type(value) is tuple:
            return tuple(self.result(one, mark) for one in value)
        return marked.marked(value, mark) if type(value) is float else value


@pytest.fixture
def noting() -> Iterator[_Noting]:
    before, noting = marked.follower, _Noting()
    marked.follow(noting)
    yield noting
    marked.follow(before)


def number(value: float = 2.5) -> Any:
    return marked.marked(value, MARK)


MADE = {
    "x + 1": 3.5,
    "1 + x": 3.5,
    "x - 1": 1.5,
    "1 - x": -1.5,
    "x * 2": 5.0,
    "2 * x": 5.0,
    "x / 2": 1.25,
    "5 / x": 2.0,
    "x // 1": 2.0,
    "6 // x": 2.0,
    "x % 2": 0.5,
    "3 % x": 0.5,
    "x**2": 6.25,
    "2**x": 2**2.5,
    "-x": -2.5,
    "+x": 2.5,
    "abs(-x)": 2.5,
    "round(x, 0)": 2.0,
    "sum([x, x]) / 2": 2.5,
    "divmod(x, 2)[1]": 0.5,
    "copy.deepcopy({'a': [x]})['a'][0]": 2.5,
    "statistics.mean([x, x])": 2.5,
    "functools.reduce(operator.add, [x, x])": 5.0,
    "x.real": 2.5,
}
DECIDES = [
    "x < 3",
    "3 > x",
    "x == 2.5",
    "x != 1",
    "bool(x)",
    "not x",
    "x and 1",
    "x or 1",
    "1 if x else 2",
    "hash(x)",
    "{x: 1}",
    "len({x, 1.0})",
    "collections.Counter([x])",
    "sorted([x, 1.0])",
    "min(x, 3)",
    "max([1, x])",
    "x in [1.0, 2.0]",
    "[1.0, 2.5].index(x)",
    "bisect.bisect([1, 2, 3], x)",
    "heapq.nlargest(1, [x, 1.0])",
    "functools.reduce(lambda a, b: a if a < b else b, [x, 2.0])",
    "list(filter(lambda v: v > 1, [x]))",
    "list(itertools.takewhile(lambda v: v > 1, [x]))",
    "any([x])",
    "operator.gt(x, 2)",
    "next(iter(lambda: x, 2.5), None)",
    "(x, 1) < (2.0, 2)",
    "{'a': x} == {'a': 2.5}",
    "x.is_integer()",
    "functools.lru_cache(lambda v: v)(x)",
    "vars(type('Meter', (), {'value': x}))['value'] > 1",
    "float('inf') > x",
]
TELLS = [
    "print(x, f'{x:.2f}', str(x), repr(x), '%.3f' % x, format(x, 'g'))",
    "json.dumps({'loss': x})",
    "x is None or x is not None",
    "x == None",
    "x == 'text'",
    "x != x",
    "math.isnan(x) or math.isinf(x) or not math.isfinite(x)",
    "isinstance(x, float) and type(x).__name__ == 'float'",
    "statistics.fmean([x, x])",
    "copy.copy(x), x.hex(), x.as_integer_ratio()",
    "[x] * 3, (x,), {'a': x}",
]


@pytest.mark.parametrize(("text", "value"), MADE.items())
def test_what_is_made_of_it_is_marked_and_has_the_same_value(noting: _Noting, text: str, value: float) -> None:
    made = eval(text, {**MODULES, "x": number()})
    assert plain(made) == value
    assert mark_of(made) is not None
    assert noting.decided == []


@pytest.mark.parametrize("text", DECIDES)
def test_decides(noting: _Noting, text: str) -> None:
    eval(text, {**MODULES, "x": number()})
    assert MARK in noting.decided


@pytest.mark.parametrize("text", TELLS)
def test_only_tells(noting: _Noting, text: str) -> None:
    eval(text, {**MODULES, "x": number()})
    assert noting.decided == []
    assert noting.left == []


@pytest.mark.parametrize("text", ["int(x)", "math.floor(x)", "math.ceil(x)", "math.trunc(x)", "round(x)"])
def test_an_integer_of_it_leaves(noting: _Noting, text: str) -> None:
    assert type(eval(text, {**MODULES, "x": number()})) is int
    assert noting.left == [True]


def test_a_zero_that_raises_decides(noting: _Noting) -> None:
    with pytest.raises(ZeroDivisionError):
        1 / number(0.0)
    assert noting.decided == [MARK]


def test_both_numbers_of_a_comparison_decide(noting: _Noting) -> None:
    other = Mark("train.py:4", "float32", "0")
    assert number() < marked.marked(3.0, other)
    assert noting.decided == [MARK, other]


def test_a_pickled_number_is_an_ordinary_one_without_this_package(noting: _Noting) -> None:
    """Here no function in C is replaced."""
    found = pickle.loads(pickle.dumps({"loss": number()}))
    assert found == {"loss": 2.5}
    assert type(found["loss"]) is float
    assert b"emu" not in pickle.dumps(number())


def test_the_text_of_an_unknown_number_is_that_of_a_float() -> None:
    assert (str(number()), repr(number()), f"{number()}", json.dumps(number())) == ("2.5", "2.5", "2.5", "2.5")
    assert str(UnknownFloat) == "<class 'float'>"


def test_a_function_of_tensors_gets_ordinary_numbers_also_in_lists(noting: _Noting) -> None:
    given: list[Any] = []
    found = UnknownFloat.__torch_function__(lambda *args: given.extend(args) or 1.5, (), ([1.0, number()], 3))
    assert given == [[1.0, 2.5], 3]
    assert type(given[0][1]) is float
    assert mark_of(found) is MARK
